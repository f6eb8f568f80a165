"""Calibration of a link run: fitted to validation snapshots, its error measured on test snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from strobe.engine.evaluation.link_scores import LinkScorer, link_scorers
from strobe.engine.job import Job
from strobe.engine.windows import Window
from strobe.io.lazy_import import lazy_import
from strobe.ops.sparse.csr import IntArray
from strobe.tasks.calibration import (
    Bin,
    LinkCalibration,
    ScoredPairs,
    calibration_error,
    fit_calibration,
    reliability,
)
from strobe.tasks.link_prediction import LinkProblem
from strobe.tasks.pairs import split_keys

if TYPE_CHECKING:
    from scipy import special
else:
    special = lazy_import("scipy.special")

MAX_SCORES = 8_000_000
"""Scores that are computed for each part; sources are sampled beyond."""

MIN_SOURCES = 8
"""Sources of each snapshot, at least, however many candidates there are."""

TOP = 64
"""Candidates of each source that are always in the sample, beside its edges: those with the highest scores."""

SAMPLED = 64
"""Samples of the other candidates of each source."""


@dataclass(frozen=True, kw_only=True)
class CalibratedLinks:
    """The calibration of a run and how well it holds for the test part.

    Args:
        calibration: fitted to the validation part alone.
        error: expected calibration error over all pairs of the test part, in bins of equally many pairs; None without
            test pairs.
        uncalibrated_error: the same of sigmoid(score).
        edge_error: the sum over bins of equally many expected edges of |expected - actual edges|, over actual edges.
        bins: these bins.
    """

    calibration: LinkCalibration
    error: float | None = None
    uncalibrated_error: float | None = None
    edge_error: float | None = None
    bins: tuple[Bin, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Part of ``result.json``."""
        return {**asdict(self), "bins": [asdict(each) for each in self.bins]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> CalibratedLinks:
        return cls(
            calibration=LinkCalibration.from_json(values["calibration"]),
            **{name: values[name] for name in ("error", "uncalibrated_error", "edge_error")},
            bins=tuple(Bin(**each) for each in values["bins"]),
        )


def calibrate(
    job: Job,
    model: nn.Module,
    head: nn.Module,
    known: Iterable[Window] | None = None,
    on_snapshot: Callable[[int], None] | None = None,
) -> CalibratedLinks | None:
    """Fit the calibration of a link task to validation snapshots, and measure it on test snapshots.

    Runs on one rank: a forward pass over the graph and ``MAX_SCORES`` scores for each part.

    Args:
        job: the run.
        model: with the weights to calibrate.
        head: its head.
        known: windows of all snapshots before the test part, if there are any.
        on_snapshot: called with each snapshot that has been read.

    Returns:
        The calibration; None for other tasks, for those without ``calibrate``, and where no validation snapshot is
        followed by an edge.
    """
    problem = job.problem
    if not isinstance(problem, LinkProblem) or not problem.task.calibrate:
        return None
    alone, split = job if job.comm.num_ranks == 1 else job.on_one_rank(), problem.split
    if alone.evaluation_batches(split.test) is None:  # windows of all snapshots
        windows = alone.evaluation_windows(split.test, known)
    else:
        windows = chain.from_iterable(map(alone.evaluation_windows, (split.validation, split.test)))
    times = range(split.validation.start, split.test.stop)
    scorers = link_scorers(model, head, problem, windows, times, on_snapshot)
    validation, test = sample_parts(scorers, (split.with_examples("validation"), split.test), job.settings.seed)
    fitted = None if validation is None else fit_calibration(validation, problem.task.negatives)
    if fitted is None:
        return None
    return CalibratedLinks(calibration=fitted) if test is None else measure(fitted, test)


def measure(calibration: LinkCalibration, test: ScoredPairs) -> CalibratedLinks:
    """The errors of a calibration for some pairs."""
    probabilities, labels, weights = calibration.of_pairs(test), test.labels, test.weights
    bins = reliability(probabilities, labels, weights, by=weights * probabilities)
    actual = sum(each.share * each.actual for each in bins)
    return CalibratedLinks(
        calibration=calibration,
        error=calibration_error(reliability(probabilities, labels, weights)),
        uncalibrated_error=calibration_error(reliability(special.expit(test.scores), labels, weights)),
        edge_error=calibration_error(bins) / actual if actual else None,
        bins=tuple(bins),
    )


def sample_parts(
    scorers: Iterable[LinkScorer], parts: Sequence[range], seed: int, *, max_scores: int = MAX_SCORES
) -> list[ScoredPairs | None]:
    """A weighted sample of all pairs of sources and candidates after the snapshots of each part; None without pairs.

    Sources with edges in the target snapshot are up to half of the sampled sources, others the rest; every candidate
    counts in the sums of a source.
    """
    found: list[list[ScoredPairs]] = [[] for _ in parts]
    for scorer in scorers:
        for times, sampled in zip(parts, found, strict=True):
            if scorer.t in times:
                sampled += _sample_snapshot(scorer, max_scores // len(times), seed)
    return [ScoredPairs.concatenate(sampled) if sampled else None for sampled in found]


def _sample_snapshot(scorer: LinkScorer, max_scores: int, seed: int) -> Iterable[ScoredPairs]:
    sources, candidates = scorer.sources(), scorer.candidates()
    rng = np.random.default_rng([seed, scorer.t])
    src, dst = split_keys(scorer.problem.target_arcs(scorer.t))
    known = np.isin(src, sources) & np.isin(dst, candidates)
    src, dst = src[known], dst[known]
    most = max(max_scores // max(len(candidates), 1), MIN_SOURCES)
    active = np.unique(src)
    others = np.setdiff1d(sources, active)
    chosen = _choose(active, max(most // 2, most - len(others)), rng)
    for stratum, rows in ((active, chosen), (others, _choose(others, most - len(chosen), rng))):
        for here, scores in scorer.blocks(rows, candidates):
            mine = np.isin(src, here)
            edges = np.stack([np.searchsorted(here, src[mine]), np.searchsorted(candidates, dst[mine])])
            yield _sample_block(scorer, here, scores, edges, len(stratum) / len(rows), rng)


def _choose(nodes: IntArray, most: int, rng: np.random.Generator) -> IntArray:
    return nodes if len(nodes) <= most else np.sort(rng.choice(nodes, most, replace=False, shuffle=False))


def _sample_block(
    scorer: LinkScorer, sources: IntArray, scores: Tensor, edges: IntArray, weight: float, rng: np.random.Generator
) -> ScoredPairs:
    """Edges, the candidates with the highest scores, and samples of the others, of some sources.

    Args:
        scorer: of the snapshot.
        sources: nodes, [b].
        scores: of all candidates, [b, M]; -inf for a node with itself.
        edges: rows and columns of edges.
        weight: how many sources each one represents.
        rng: of the samples.
    """
    num_candidates = scores.shape[1]
    log_sum = torch.logsumexp(scores, 1).cpu().double().numpy()
    scores = scores.cpu()
    certain = torch.zeros(scores.shape, dtype=torch.bool)
    top = num_candidates if num_candidates <= TOP + SAMPLED else TOP
    certain.scatter_(1, torch.topk(scores, top, dim=1).indices, value=True)
    certain[tuple(torch.from_numpy(edges))] = True
    certain &= scores > -torch.inf
    # Samples with repetition of the other candidates, each of which stands for as many of them.
    others = (scores > -torch.inf).sum(1) - certain.sum(1)
    column = torch.from_numpy(rng.integers(0, num_candidates, (len(sources), SAMPLED)))
    row = torch.arange(len(sources))[:, None].expand_as(column)
    is_other = ~certain[row, column] & (scores[row, column] > -torch.inf)
    stands_for = others / is_other.sum(1).clamp(min=1)
    certain_row, certain_column = certain.nonzero(as_tuple=True)
    rows = torch.cat([certain_row, row[is_other]])
    columns = torch.cat([certain_column, column[is_other]])
    is_edge = torch.zeros(scores.shape, dtype=torch.bool)
    is_edge[tuple(torch.from_numpy(edges))] = True
    weights = torch.where(certain[rows, columns], 1.0, stands_for[rows].double()) * weight
    at = rows.numpy()
    return ScoredPairs(
        scores=scores[rows, columns].double().numpy(),
        log_sum=log_sum[at],
        num_candidates=np.full(len(at), float(num_candidates)),
        rate=scorer.edge_rates(sources)[at],
        labels=is_edge[rows, columns].numpy(),
        weights=weights.numpy(),
    )
