from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from strobe.api import train
from strobe.errors import InputError, OptionError
from strobe.graph import DynamicGraph, Snapshot, from_edges
from strobe.plan import Plan
from strobe.tasks import Examples, LinkPrediction, edge_history, pairs, target_edges
from strobe.tasks.base import Problem
from strobe.tasks.link_prediction import LinkProblem

Pair = tuple[int, int]


def random_graph(directed: bool = True, snapshots: int = 8) -> DynamicGraph:
    rng = np.random.default_rng(5)
    edges = [rng.integers(0, 30, (2, 60)) for _ in range(snapshots)]
    return from_edges(edges, num_nodes=30, directed=directed)


def lasting_graph(directed: bool) -> DynamicGraph:
    """Of 80 edges 10 are others in every next snapshot, and some come back."""
    rng = np.random.default_rng(6)
    pool = rng.integers(0, 30, (2, 120))
    chosen = rng.permutation(120)[:80]
    edges = []
    for _ in range(10):
        chosen = np.concatenate([chosen[10:], rng.choice(np.setdiff1d(np.arange(120), chosen), 10, replace=False)])
        edges.append(pool[:, chosen])
    return from_edges(edges, num_nodes=30, directed=directed)


def grouped(problem: LinkProblem, t: int, epoch: int | None = None) -> list[list[Pair]]:
    """Per positive the pair of nodes itself and its negatives."""
    examples = problem.examples(t, epoch)
    assert examples is not None
    assert examples.edge_label_index is not None
    groups: list[list[Pair]] = []
    for s, d, y in zip(*examples.edge_label_index.tolist(), examples.labels.tolist(), strict=True):
        groups += [[]] if y else []
        groups[-1].append((s, d))
    return groups


@pytest.mark.parametrize("directed", [True, False])
def test_negatives_share_the_source_of_their_positive(directed: bool) -> None:
    graph = random_graph(directed)
    problem = LinkPrediction(negatives=3, eval_negatives=7).bind(graph)
    for epoch, count in ((None, 7), (4, 3)):
        src, dst = graph[3].arcs()
        arcs = set(zip(src.tolist(), dst.tolist(), strict=True))
        groups = grouped(problem, 2, epoch)
        assert {len(group) for group in groups} == {1 + count}
        for (s, d), *others in groups:
            assert (s, d) in arcs
            assert all(source == s and (source, other) not in arcs and other != s for source, other in others)


def test_examples_differ_between_epochs_but_not_in_evaluation() -> None:
    problem = LinkPrediction().bind(random_graph())
    assert problem.resamples_each_epoch
    assert grouped(problem, 1, 0) == grouped(problem, 1, 0)
    assert grouped(problem, 1, 0) != grouped(problem, 1, 1)
    assert grouped(problem, 1) == grouped(problem, 1)
    other_seed = LinkPrediction().bind(random_graph(), seed=1)
    assert grouped(problem, 1) != grouped(other_seed, 1)
    assert grouped(problem, 1, 0) != grouped(other_seed, 1, 0)


def test_target_edges_beyond_the_cache_are_recomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    roomy = LinkPrediction().bind(random_graph())
    asked = [grouped(roomy, t, epoch) for epoch in (None, 0, 1) for t in range(7)]
    monkeypatch.setattr(target_edges, "CACHE_BYTES", 60 * 8)  # one snapshot's edges
    tight = LinkPrediction().bind(random_graph())
    assert [grouped(tight, t, epoch) for epoch in (None, 0, 1) for t in range(7)] == asked
    assert (len(roomy._target_edges_cache), len(tight._target_edges_cache)) == (7, 1)


def test_more_positives_than_allowed_are_sampled_in_training_and_scored_in_evaluation() -> None:
    graph = random_graph()
    everything, few = LinkPrediction(max_pairs=None).bind(graph), LinkPrediction(max_pairs=10).bind(graph)
    drawn = [{group[0] for group in grouped(few, 0, epoch)} for epoch in range(30)]
    positives = {group[0] for group in grouped(everything, 0)}
    assert all(len(each) == 10 and each <= positives for each in drawn)
    assert set.union(*drawn) == positives  # over epochs every edge has its turn
    assert {group[0] for group in grouped(few, 0)} == positives
    assert len(grouped(LinkPrediction(eval_max_pairs=10).bind(graph), 0)) == 10


def test_coverage_is_the_scored_share_of_the_edges() -> None:
    graph = random_graph()
    for limit, scored in ((None, 1.0), (10, 10 / 57)):
        problem = LinkPrediction(eval_max_pairs=limit).bind(graph)
        edges = [len({(s, d) for s, d in zip(*graph[t + 1].arcs(), strict=True) if s != d}) for t in problem.split.test]
        found = problem.coverage(problem.split.test, [problem.examples(t) for t in problem.split.test])  # type: ignore[misc]
        assert found["edges"] == sum(edges)
        assert found["coverage"] == pytest.approx(scored if limit is None else len(edges) * limit / sum(edges))
    assert problem.coverage(range(0), []) == {}


def visitors(snapshots: int = 8) -> DynamicGraph:
    """Nodes 0 to 9 have edges to nodes 10 to 29, every node is present only where it has an edge. Node 29 turns into a
    source in the last snapshot."""
    rng = np.random.default_rng(3)
    edges = [np.stack([rng.integers(0, 10, 12), rng.integers(10, 29, 12)]) for _ in range(snapshots)]
    edges[0] = np.stack([np.arange(10), np.arange(10, 20)])
    edges[-1] = np.concatenate([edges[-1], [[29], [12]]], axis=1)
    return from_edges(edges, num_nodes=30, nodes=[np.unique(each) for each in edges])


def test_ends_that_are_absent_from_the_snapshot_have_examples() -> None:
    graph = visitors()
    problem = LinkPrediction().bind(graph)
    for t in range(7):
        src, dst = (graph[t + 1].nodes[ends] for ends in graph[t + 1].arcs())
        assert {group[0] for group in grouped(problem, t)} == set(zip(src.tolist(), dst.tolist(), strict=True))


def test_negatives_of_a_bipartite_graph_are_no_sources() -> None:
    problem = LinkPrediction(eval_negatives=50).bind(visitors())
    assert problem.is_bipartite
    for t in range(7):
        negatives = {d for group in grouped(problem, t) for _, d in group[1:]}
        assert min(negatives) >= 10
        assert 29 in negatives  # it is no source up to here
    mixed = LinkPrediction(eval_negatives=50).bind(random_graph())
    assert not mixed.is_bipartite
    assert {d for group in grouped(mixed, 1) for _, d in group[1:]} == set(range(30))


def test_a_node_that_becomes_a_source_is_no_candidate_any_more() -> None:
    problem = LinkPrediction(train=0.5).bind(visitors())
    assert problem.candidates(6).positions(np.array([29])).tolist() == [19]  # after the sources 0 to 9
    assert problem.candidates(7).positions(np.array([29, 28, 0])).tolist() == [-1, 18, -1]


def complete(snapshots: int = 6) -> DynamicGraph:
    """Node 0 always has edges to both others, node 1 only to 2."""
    return from_edges([np.array([[0, 0, 1], [1, 2, 2]])] * snapshots, num_nodes=3)


def test_source_with_edges_to_all_nodes_has_no_negatives() -> None:
    problem = LinkPrediction(eval_negatives=2, from_history=False).bind(complete())
    assert grouped(problem, 5 - 1) == [[(0, 1)], [(0, 2)], [(1, 2), (1, 0), (1, 0)]]
    examples = problem.examples(4)
    assert examples is not None
    # Ranks count only 1→2, which has somebody to beat; pairs count all five.
    scored = problem.metrics([torch.tensor([-1.0, -1.0, 1.0, 2.0, 0.0])], [examples])
    assert scored["mrr"] == 0.5
    assert scored["auc"] == pytest.approx((0 + 0 + 1) / 6)


def test_only_ap_is_defined_without_negatives() -> None:
    edges = [np.array([[0, 1], [1, 0]])] * 6
    problem = LinkPrediction().bind(from_edges(edges, num_nodes=2))
    examples = problem.examples(4)
    assert examples is not None
    assert problem.metrics([torch.zeros(2)], [examples]) == {"ap": 1.0}
    assert problem.baselines("test")["popularity"] == {"ap": 1.0}


def test_loss_is_the_summed_cross_entropy() -> None:
    problem = LinkPrediction().bind(random_graph())
    examples = Examples(None, torch.tensor([1.0, 0.0]), edge_label_index=torch.tensor([[0, 0], [1, 2]]))
    loss = problem.loss(torch.tensor([2.0, 3.0]), examples)
    assert float(loss) == pytest.approx(math.log1p(math.exp(-2)) + math.log1p(math.exp(3)))
    table = problem.table(torch.tensor([2.0, 3.0]), examples, 0)
    assert table["score"].tolist() == [2, 3]
    assert table["actual"].tolist() == [1, 0]


def test_nan_predictions_give_nan_metrics() -> None:
    problem = LinkPrediction().bind(random_graph())
    examples = problem.examples(6)
    assert examples is not None
    scored = problem.metrics([torch.full((len(examples),), math.nan)], [examples])
    assert all(math.isnan(value) for value in scored.values())
    assert problem.metrics([], []) == {}


@pytest.mark.parametrize("directed", [True, False])
def test_baselines_agree_with_sets_of_edges(directed: bool) -> None:
    graph = random_graph(directed)
    problem = LinkPrediction(eval_negatives=3, from_history=False).bind(graph)
    examples = [each for s in problem.split.test if (each := problem.examples(s)) is not None]
    expected: dict[str, list[torch.Tensor]] = {"last snapshot": [], "edgebank": [], "popularity": []}
    for t, asked in zip(problem.split.test, examples, strict=True):
        arcs = [set(zip(*(ends.tolist() for ends in graph[s].arcs()), strict=True)) for s in range(t + 1)]
        arcs = [{(u, v) for u, v in each if u != v} for each in arcs]
        count = Counter(v for each in arcs for _, v in each)
        assert asked.edge_label_index is not None
        pairs = list(zip(*asked.edge_label_index.tolist(), strict=True))
        expected["last snapshot"].append(torch.tensor([float(pair in arcs[t]) for pair in pairs]))
        expected["edgebank"].append(torch.tensor([float(any(pair in each for each in arcs)) for pair in pairs]))
        expected["popularity"].append(torch.tensor([float(count[d]) for _, d in pairs]))
    found = problem.baselines("test")
    assert {name: found[name] for name in expected} == {
        name: problem.metrics(said, examples) for name, said in expected.items()
    }
    assert len({scored["auc"] for scored in found.values()}) == 4


@pytest.mark.parametrize("directed", [True, False])
def test_offset_is_the_log_odds_of_the_history(directed: bool) -> None:
    problem = LinkPrediction(eval_negatives=3).bind(lasting_graph(directed))
    examples = [each for s in problem.split.test if (each := problem.examples(s)) is not None]
    silent = [torch.zeros(len(each)) for each in examples]
    found = problem.baselines("test")
    assert problem.metrics(silent, examples) == pytest.approx(found["history"])
    assert found["history"]["ap"] > max(found[name]["ap"] for name in ("last snapshot", "edgebank", "popularity"))
    # A model's own answers come on top of that: in the loss, in the metrics and in tables.
    said = [1e3 * each.labels for each in examples]
    assert problem.metrics(said, examples)["ap"] == 1
    assert problem.loss(said[0], examples[0]) < problem.loss(silent[0], examples[0])
    start = examples[0].offset
    assert start is not None
    scores = problem.table(silent[0], examples[0], problem.split.test[0])["score"]
    np.testing.assert_allclose(scores, start.numpy())


@pytest.mark.parametrize("from_history", [True, False])
@pytest.mark.parametrize("directed", [True, False])
def test_rebound_problem_equals_one_bound_to_the_whole_graph(
    directed: bool, from_history: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, while new snapshots alone are read."""
    task, whole = LinkPrediction(from_history=from_history), lasting_graph(directed)
    problem: Problem = task.bind(whole[:4], seed=2)
    state = problem.state()
    rebuilt = [task.bind(whole[:end], seed=2, state=state).with_online_split(end - 2) for end in range(4, 11)]
    expected = [_all_examples(each, end - 2) for end, each in enumerate(rebuilt, 4)]
    read: list[int] = []

    def arcs_of(snapshot: Snapshot) -> tuple[pairs.Keys, pairs.Keys]:
        read.append(snapshot.t)
        return pairs.unique_arcs(snapshot)

    monkeypatch.setattr(edge_history, "unique_arcs", arcs_of)
    found = []
    for end in range(4, 11):
        problem = task.rebind(problem, whole[:end]).with_online_split(end - 2)
        found.append(_all_examples(problem, end - 2))
    assert found == expected
    assert [read.count(t) for t in range(10)] == [0] * 4 + [1] * 6


def _all_examples(problem: Problem, t: int) -> Any:
    asked = [problem.examples(t), problem.examples(t, 0), problem.unlabeled_examples(t)]
    listed = [(each.edge_label_index, each.labels, each.offset, each.features) for each in asked if each is not None]
    plain = [[None if part is None else part.tolist() for part in parts] for parts in listed]
    return plain, problem.baselines("validation")


@pytest.mark.parametrize(
    "options",
    [{"ahead": 0}, {"negatives": 0}, {"eval_negatives": 0}, {"max_pairs": 0}, {"eval_max_pairs": 0}, {"train": 2.0}],
)
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        LinkPrediction(**options)


def test_graph_without_positives_is_refused() -> None:
    empty = [np.empty((2, 0), np.int64)] * 7
    with pytest.raises(InputError, match="no positives"):
        LinkPrediction().bind(from_edges([*empty, np.array([[0], [1]])], num_nodes=2))


def test_a_run_never_ends_worse_in_validation_than_its_offset() -> None:
    """The first step is so large that all trained weights are bad."""
    run = train(lasting_graph(True), "tgcn", LinkPrediction(), epochs=2, lr=1e3, threads=1, plan=Plan())
    assert run.best_epoch == 0
    assert run.validation["ap"] == pytest.approx(run.baselines["validation"]["history"]["ap"], abs=1e-4)
    assert run.test["ap"] == pytest.approx(run.baselines["test"]["history"]["ap"], abs=1e-4)
    assert "best at epoch 0" in run.summary()
    assert "coverage 100%" in run.summary()


def test_problems_of_an_online_run_share_the_history_of_edges() -> None:
    graph = from_edges([np.array([[0, 1], [1, 2]])] * 6, num_nodes=3)
    problem = LinkPrediction(pair_features=False, from_history=False).bind(graph)
    assert problem.with_online_split(2).history is problem.with_online_split(3).history
