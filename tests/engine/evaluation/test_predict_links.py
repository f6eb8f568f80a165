from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import strobe
from strobe.engine import Run
from strobe.engine.evaluation.predict_links import TopLinks, iter_top_links, predict_links, predict_pairs
from strobe.engine.forward import embeddings, predict_examples
from strobe.errors import InputError, OptionError
from strobe.graph import DynamicGraph, from_edges
from strobe.ops.sparse.csr import IntArray
from strobe.tasks import LinkPrediction, LinkRanking
from strobe.tasks.base import Examples
from strobe.tasks.grid import CandidateGrid
from strobe.tasks.link_prediction import LinkProblem
from tests.support.runs import short_graph

NODES, ABSENT, UNSEEN = 14, 3, 13
TASKS = [LinkPrediction(), LinkRanking(), LinkPrediction(pair_features=False, from_history=False)]
KINDS = ["directed", "undirected", "bipartite"]
Scores = dict[tuple[int, int], float]


def make_graph(kind: str) -> DynamicGraph:
    """Node 3 is absent from the last snapshots, no snapshot has node 13; bipartite: from nodes 0 to 5 to 6 to 13."""
    rng = np.random.default_rng(7)
    edges = []
    for t in range(9):
        present = [v for v in range(NODES - 1) if v != ABSENT or t < 5]
        first, second = present, present
        if kind == "bipartite":
            first, second = [v for v in present if v < 6], [v for v in present if v >= 6]
        edges.append(np.stack([rng.choice(first, 15), rng.choice(second, 15)]))
    return from_edges(edges, num_nodes=NODES, directed=kind != "undirected", times=[10 * t for t in range(9)])


@pytest.fixture(scope="module", params=[(kind, number) for kind in KINDS for number in range(len(TASKS))], ids=str)
def run(request: pytest.FixtureRequest) -> Run:
    kind, number = request.param
    trained = strobe.train(make_graph(kind), "tgcn", TASKS[number], epochs=1, window=3, model_options={"hidden": 4})
    torch.manual_seed(0)
    for weight in trained.head.parameters():  # as far from the offset as a trained one
        weight.data += 0.3 * torch.randn_like(weight)
    return trained


def brute_force(run: Run) -> Scores:
    """The score of every ordered pair after the last snapshot: ``PairDecoder.forward`` on listed pairs, whose ends the
    evaluation finds."""
    problem = run.problem
    assert isinstance(problem, LinkProblem)
    pairs = np.array([(s, d) for s in range(NODES) for d in range(NODES) if s != d]).T
    listed = Examples(None, torch.zeros(pairs.shape[1]), edge_label_index=torch.from_numpy(pairs))
    last = len(problem.graph) - 1
    times = range(last, last + 1)
    windows = run.job.evaluation_windows(times)
    for _, z, local in embeddings(run.model, run.head, problem, windows, times, lambda _: listed):
        found = predict_examples(run.head, z, local.examples).double()
        if local.examples.offset is not None:
            found = found + local.examples.offset
        return {(int(s), int(d)): float(score) for (s, d), score in zip(pairs.T, found, strict=True)}
    raise AssertionError


def rows_of(table: object) -> Iterator[tuple[int, int, int, float]]:
    columns = [table[name].to_pylist() for name in ("source", "destination", "rank", "score")]  # type: ignore[index]
    return zip(*columns, strict=True)


def allowed(run: Run) -> dict[int, list[int]]:
    """Candidates of each source."""
    if run.problem.is_bipartite:  # type: ignore[attr-defined]
        return {s: list(range(6, NODES)) for s in range(6)}
    return {s: [d for d in range(NODES) if d != s] for s in range(NODES)}


@pytest.mark.parametrize("top", [1, 3, 50])
def test_top_candidates_equal_brute_force_over_listed_pairs(run: Run, top: int) -> None:
    scores, candidates = brute_force(run), allowed(run)
    found = list(rows_of(predict_links(run, top)))
    assert [row[0] for row in found] == [s for s, each in candidates.items() for _ in range(min(top, len(each)))]
    for source, each in candidates.items():
        mine = [row for row in found if row[0] == source]
        best = sorted((scores[source, d] for d in each), reverse=True)[:top]
        assert [rank for _, _, rank, _ in mine] == list(range(1, len(best) + 1))
        assert [score for *_, score in mine] == pytest.approx(best, abs=1e-4)
        assert [scores[source, d] for _, d, _, _ in mine] == pytest.approx(best, abs=1e-4)
        assert len({d for _, d, _, _ in mine}) == len(mine)
    assert {ABSENT} <= {row[0] for row in found}
    assert UNSEEN in {row[1] for row in found} or top < 50


def test_listed_pairs_have_the_scores_and_probabilities_of_the_best_candidates(run: Run) -> None:
    best = predict_links(run, 50)
    shuffled = np.random.default_rng(0).permutation(best.num_rows)
    src, dst = (best[name].to_numpy()[shuffled] for name in ("source", "destination"))
    found = predict_pairs(run, src, dst)
    assert found["source"].to_pylist() == src.tolist()
    for name in ("score", "probability"):
        np.testing.assert_allclose(found[name].to_numpy(), best[name].to_numpy()[shuffled], rtol=1e-3, atol=1e-5)
    assert (np.abs(found["probability"].to_numpy() - 0.5) <= 0.5).all()
    in_source = best["probability"].to_numpy()[best["source"].to_numpy() == 0]
    assert (np.diff(in_source) <= 0).all()


@pytest.mark.parametrize("exclude", ["last", "ever"])
def test_pairs_with_an_edge_are_left_out(run: Run, exclude: str) -> None:
    graph = run.problem.graph
    times = [len(graph) - 1] if exclude == "last" else range(len(graph))
    edges = set()
    for t in times:
        src, dst = graph[t].arcs()
        edges |= {(int(graph[t].nodes[s]), int(graph[t].nodes[d])) for s, d in zip(src, dst, strict=True)}
    whole = {(s, d) for s, d, _, _ in rows_of(predict_links(run, 50))}
    found = {(s, d) for s, d, _, _ in rows_of(predict_links(run, 50, exclude=exclude))}
    assert found == whole - edges
    assert found < whole


def test_some_nodes_have_the_rows_that_they_have_among_all(run: Run) -> None:
    whole = [row for row in rows_of(predict_links(run, 4)) if row[0] in (0, ABSENT)]
    found = list(rows_of(predict_links(run, 4, [ABSENT, 0, 0])))
    assert [row[:3] for row in found] == [row[:3] for row in whole]
    assert [row[3] for row in found] == pytest.approx([row[3] for row in whole], abs=1e-4)


def test_predicted_time_follows_the_snapshot_read(run: Run) -> None:
    table = predict_links(run, 1)
    assert set(table["t"].to_pylist()) == {8}
    assert set(table["read_time"].to_pylist()) == {80}
    assert set(table["time"].to_pylist()) == {90}


def test_uncalibrated_run_has_scores_and_no_probabilities() -> None:
    run = strobe.train(short_graph(), "tgcn", LinkPrediction(calibrate=False), epochs=1)
    assert run.calibration is None
    for table in (run.predict_links(2), run.predict_pairs([0], [1]), run.predict(), run.predict("test")):
        assert "score" in table.column_names
        assert "probability" not in table.column_names


def test_positives_of_link_ranking_are_a_table() -> None:
    run = strobe.train(short_graph(), "tgcn", "link-ranking", epochs=1)
    table = run.predict("test")
    assert set(table["actual"].to_pylist()) == {1}
    assert np.isfinite(table["score"].to_numpy()).all()


def test_other_tasks_and_nodes_are_refused() -> None:
    run = strobe.train(short_graph(), "tgcn", "regression", epochs=1)
    with pytest.raises(OptionError, match="task is regression"):
        run.predict_links()
    run = strobe.train(short_graph(), "tgcn", "link-prediction", epochs=1)
    with pytest.raises(InputError, match="node 40"):
        run.predict_links(nodes=[40])
    with pytest.raises(InputError, match="itself"):
        run.predict_pairs([1], [1])
    with pytest.raises(OptionError, match="at least 1"):
        run.predict_links(0)
    with pytest.raises(OptionError, match="exclude"):
        run.predict_links(exclude="new")
    assert strobe.predict_links(run, 2, [0]).num_rows == 2


def test_related_pairs_and_scores_are_held_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    graph = from_edges([rng.integers(0, 600, (2, 900)) for _ in range(8)], num_nodes=600)
    run = strobe.train(graph, "tgcn", "link-prediction", epochs=1, model_options={"hidden": 4})
    problem = run.problem
    assert isinstance(problem, LinkProblem)
    sizes: list[int] = []
    make_grid = problem.make_grid

    def counted(t: int, src: IntArray, *others: Any) -> CandidateGrid:
        sizes.append(len(src))
        return make_grid(t, src, *others)

    monkeypatch.setattr(problem, "make_grid", counted)
    done: list[tuple[int, int | None]] = []
    tables = list(iter_top_links(run, TopLinks(top=5), lambda *progress: done.append(progress)))
    assert sizes == [256, 256, 88]
    assert max(table.num_rows for table in tables) <= 256 * 5
    assert done[-1] == (600, 600)
    best = {row[:2]: row[3] for table in tables for row in rows_of(table)}
    assert len(best) == 3000
    for source in (0, 255, 256, 599):
        others = np.array([d for d in range(600) if d != source])
        scores = predict_pairs(run, np.full(599, source), others)["score"].to_numpy()
        mine = sorted(score for (s, _), score in best.items() if s == source)
        assert mine == pytest.approx(np.sort(scores)[-5:].tolist(), abs=1e-4)
