"""Predicted links: the best candidates of every node, or listed pairs, in the snapshot after the last one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from strobe.engine.evaluation.link_scores import LinkScorer, link_scorers
from strobe.engine.evaluation.tables import WrittenTable, embedding_column, node_columns, time_columns, write_tables
from strobe.engine.examples import MakeExamples
from strobe.engine.run import Run
from strobe.engine.windows import Window
from strobe.errors import InputError, OptionError
from strobe.graph.progress import OnProgress
from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.tasks.base import edge_ends
from strobe.tasks.calibration import LinkCalibration
from strobe.tasks.grid import top_candidates
from strobe.tasks.link_prediction import LinkProblem
from strobe.tasks.pairs import MAX_NODES, unique_arcs

EXCLUDED = ("none", "last", "ever")
"""Pairs that ``predict_links`` leaves out: none, those with an edge in the snapshot read, or in any snapshot."""

ROWS_PER_TABLE = 1 << 18
"""Listed pairs per table that is written."""


@dataclass(frozen=True, kw_only=True)
class TopLinks:
    """Which links to predict.

    Args:
        top: candidates of each source, at most.
        nodes: sources, as node ids; None for all nodes that may be sources.
        exclude: see ``EXCLUDED``. The default leaves nothing out: in most graphs the likeliest edges are repeated ones.
    """

    top: int = 20
    nodes: Sequence[int] | IntArray | None = None
    exclude: str = "none"

    def __post_init__(self) -> None:
        if self.top < 1:
            raise OptionError(f"top must be at least 1, not {self.top}")
        if self.exclude not in EXCLUDED:
            raise OptionError(f"exclude must be one of {', '.join(EXCLUDED)}, not {self.exclude!r}")


def predict_links(
    run: Run,
    top: int = 20,
    nodes: Sequence[int] | IntArray | None = None,
    *,
    exclude: str = "none",
    on_progress: OnProgress | None = None,
) -> pa.Table:
    """The candidates with the highest scores of each node, in the snapshot ``ahead`` of the last one.

    Args:
        run: a run of link-prediction or link-ranking.
        top: candidates of each node, at most.
        nodes: node ids of sources; None for all nodes that may be sources.
        exclude: ``last``: leave out pairs with an edge in the snapshot read; ``ever``: in any snapshot.
        on_progress: is called with the sources done and their number.

    Returns:
        A row per source and destination, by source and rank: the ``score`` and, if the run is calibrated, the
        ``probability`` of an edge.

    Raises:
        StrobeError: the task predicts no links, or a node is not in the graph.
    """
    return pa.concat_tables(iter_top_links(run, TopLinks(top=top, nodes=nodes, exclude=exclude), on_progress))


def predict_pairs(run: Run, sources: Any, destinations: Any) -> pa.Table:
    """Scores of listed pairs in the snapshot ``ahead`` of the last one.

    Args:
        run: a run of link-prediction or link-ranking.
        sources: node ids, [n].
        destinations: node ids, [n].

    Returns:
        A row per pair, in their order.
    """
    src, dst = np.asarray(sources, np.int64), np.asarray(destinations, np.int64)
    if len(src) != len(dst):
        raise OptionError(f"{len(src)} sources and {len(dst)} destinations are no pairs")
    _check_nodes(run, np.concatenate([src, dst]))
    if (src == dst).any():
        raise InputError(f"node {src[src == dst][0]} is paired with itself: the task has no such edges")
    return pa.concat_tables(iter_pairs(run, src, dst))


def write_top_links(
    run: Run, path: str | PathLike[str], links: TopLinks, on_progress: OnProgress | None = None
) -> WrittenTable:
    """Write the table of ``predict_links`` block by block."""
    return write_tables(path, iter_top_links(run, links, on_progress), OptionError("there is no source to predict for"))


def write_pairs(
    run: Run, path: str | PathLike[str], src: IntArray, dst: IntArray, on_progress: OnProgress | None = None
) -> WrittenTable:
    """Write the table of ``predict_pairs`` part by part."""
    return write_tables(path, iter_pairs(run, src, dst, on_progress), OptionError("there is no pair to score"))


def iter_top_links(run: Run, links: TopLinks, on_progress: OnProgress | None = None) -> Iterator[pa.Table]:
    """Yield tables of the best candidates, of a block of sources each."""
    scorer = _last_scorer(run)
    candidates, sources = scorer.candidates(), scorer.sources()
    if links.nodes is not None:
        sources = np.unique(np.asarray(links.nodes, np.int64))
        _check_nodes(run, sources)
    known = _known_arcs(scorer, links.exclude)
    calibration = _calibration(run)
    count, done = min(links.top, len(candidates)), 0
    if not len(sources) or not count:
        empty = sources[:0]
        yield _table(run, scorer.t, empty, empty, np.empty(0), None if calibration is None else np.empty(0), rank=empty)
    for here, scores in scorer.blocks(sources, candidates) if count else ():
        log_sum = torch.logsumexp(scores, 1).double().cpu().numpy()
        _exclude(scores, here, candidates, known)
        values, columns = (each.cpu().numpy() for each in top_candidates(iter([(0, scores)]), count))
        row, rank = np.nonzero(values > -np.inf)
        best, chances = values[row, rank].astype(np.float64), None
        if calibration is not None:
            rates = scorer.edge_rates(here)[row]
            chances = calibration.probabilities(best, rates, num_candidates=len(candidates), log_sum=log_sum[row])
        done += len(here)
        if on_progress is not None:
            on_progress(done, len(sources))
        yield _table(run, scorer.t, here[row], candidates[columns[row, rank]], best, chances, rank=rank + 1)


def iter_pairs(run: Run, src: IntArray, dst: IntArray, on_progress: OnProgress | None = None) -> Iterator[pa.Table]:
    """Yield tables of the scores of listed pairs, in their order."""
    scorer = _last_scorer(run)
    chances_of = _PairProbabilities(run, scorer, src)
    for first in range(0, max(len(src), 1), ROWS_PER_TABLE):
        here, to = (ends[first : first + ROWS_PER_TABLE] for ends in (src, dst))
        scores = scorer.pair_scores(here, to)
        yield _table(run, scorer.t, here, to, scores, chances_of(here, scores))
        if on_progress is not None:
            on_progress(min(first + ROWS_PER_TABLE, len(src)), len(src))


def iter_listed(
    run: Run,
    windows: Iterable[Window],
    times: range,
    make_pairs: MakeExamples,
    on_snapshot: Callable[[int], None],
    *,
    with_embeddings: bool,
) -> Iterator[pa.Table]:
    """Yield a table per snapshot of ``times``: the pairs that ``make_pairs`` makes, and whether there is an edge where
    labels are known."""
    for scorer in link_scorers(run.model, run.head, link_problem(run), windows, times, on_snapshot):
        pairs = make_pairs(scorer.t)
        if pairs is None:
            continue
        src, dst = edge_ends(pairs)
        scores, labels = scorer.pair_scores(src, dst), pairs.labels.numpy()
        more: dict[str, Any] = {} if (labels < 0).any() else {"actual": (labels > 0).astype(np.int64)}
        if with_embeddings:
            rows = scorer.rows.cpu().numpy()
            more["source_embedding"] = embedding_column(scorer.z, rows[src])
            more["destination_embedding"] = embedding_column(scorer.z, rows[dst])
        yield _table(run, scorer.t, src, dst, scores, _PairProbabilities(run, scorer, src)(src, scores), **more)


class _PairProbabilities:
    """Probabilities of listed pairs of some sources; None where the run is not calibrated."""

    def __init__(self, run: Run, scorer: LinkScorer, sources: IntArray) -> None:
        self._calibration, self._scorer = _calibration(run), scorer
        self._sources, self._candidates = np.unique(sources), scorer.candidates()
        self._log_sums = np.zeros(len(self._sources))
        if self._calibration is not None and self._calibration.needs_log_sum:
            blocks = scorer.blocks(self._sources, self._candidates)
            found = [torch.logsumexp(scores, 1).double().cpu().numpy() for _, scores in blocks]
            self._log_sums = np.concatenate([np.empty(0), *found])

    def __call__(self, src: IntArray, scores: FloatArray) -> FloatArray | None:
        if self._calibration is None:
            return None
        at = np.searchsorted(self._sources, src)
        rates = self._scorer.edge_rates(self._sources)[at]
        size = len(self._candidates)
        return self._calibration.probabilities(scores, rates, num_candidates=size, log_sum=self._log_sums[at])


def link_problem(run: Run) -> LinkProblem:
    """The problem of a run that predicts links.

    Raises:
        OptionError: the task predicts something else.
    """
    if not isinstance(run.problem, LinkProblem):
        raise OptionError(
            f"the run's task is {run.job.task.name}: only link-prediction and link-ranking predict links between nodes"
        )
    return run.problem


def _last_scorer(run: Run) -> LinkScorer:
    problem = link_problem(run)
    times = range(len(problem.graph) - 1, len(problem.graph))
    scorers = list(link_scorers(run.model, run.head, problem, run.job.evaluation_windows(times), times))
    return scorers[0]


def _calibration(run: Run) -> LinkCalibration | None:
    return None if run.calibration is None else run.calibration.calibration


def _check_nodes(run: Run, nodes: IntArray) -> None:
    wrong = nodes[(nodes < 0) | (nodes >= run.problem.graph.num_nodes)]
    if len(wrong):
        raise InputError(f"there is no node {wrong[0]}: the graph has nodes 0 to {run.problem.graph.num_nodes - 1}")


def _known_arcs(scorer: LinkScorer, exclude: str) -> IntArray:
    """Ascending keys of the pairs to leave out."""
    graph = scorer.problem.graph
    times = {"none": (), "last": (scorer.t,), "ever": range(scorer.t + 1)}[exclude]
    keys = [np.empty(0, np.int64)]
    for t in times:
        src, dst = unique_arcs(graph[t])
        keys.append(src * MAX_NODES + dst)
    return np.unique(np.concatenate(keys))


def _exclude(scores: torch.Tensor, sources: IntArray, candidates: IntArray, known: IntArray) -> None:
    """Set the scores of known pairs to -inf."""
    first, last = np.searchsorted(known, (sources[0] * MAX_NODES, (sources[-1] + 1) * MAX_NODES))
    src, dst = np.divmod(known[first:last], MAX_NODES)
    row, column = np.searchsorted(sources, src), np.searchsorted(candidates, dst)
    found = (sources[np.minimum(row, len(sources) - 1)] == src) & (
        candidates[np.minimum(column, len(candidates) - 1)] == dst
    )
    index = torch.from_numpy(np.stack([row[found], column[found]])).to(scores.device)
    scores[index[0], index[1]] = -torch.inf


def _table(
    run: Run, t: int, src: IntArray, dst: IntArray, scores: FloatArray, chances: FloatArray | None, **more: Any
) -> pa.Table:
    """Pairs with their scores and, where the run is calibrated, probabilities; ``rank`` stands before them."""
    graph = run.problem.graph
    columns = node_columns(graph, {"source": src, "destination": dst})
    columns |= time_columns(graph, t, run.job.task.shift, len(src))
    if "rank" in more:
        columns["rank"] = pa.array(more.pop("rank"), pa.int32())
    columns["score"] = pa.array(scores, pa.float64())
    if chances is not None:
        columns["probability"] = pa.array(chances, pa.float64())
    return pa.table(columns | more)
