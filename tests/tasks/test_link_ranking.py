"""Ranking of links: positives, candidates, loss, scores and metrics against plain loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from strobe.api import train
from strobe.errors import InputError, OptionError, UnknownNameError
from strobe.graph import DynamicGraph, from_edges
from strobe.ops.graph.listed_pairs import ListedPairs
from strobe.plan import Plan
from strobe.presets import preset
from strobe.tasks import LinkRanking
from strobe.tasks.base import Examples, edge_ends
from strobe.tasks.grid import CandidateGrid
from strobe.tasks.heads import GridScorer, PairDecoder
from strobe.tasks.link_ranking import LinkRankingProblem
from strobe.tasks.metrics import rank_metrics
from tests.support.gathered import Gathered
from tests.support.runs import short_graph
from tests.support.trainer import Trainer, assert_same

WIDTH, NODES = 6, 30


def random_graph(*, directed: bool = True, snapshots: int = 8) -> DynamicGraph:
    rng = np.random.default_rng(5)
    nodes = [np.sort(rng.choice(NODES, 24, replace=False)) for _ in range(snapshots)]
    edges = [present[rng.integers(0, 24, (2, 40))] for present in nodes]
    return from_edges(edges, num_nodes=NODES, nodes=nodes, directed=directed)


def examples_at(problem: LinkRankingProblem, t: int, epoch: int | None = None) -> Examples:
    examples = problem.examples(t, epoch)
    assert examples is not None
    return examples


def arcs_of(graph: DynamicGraph, t: int) -> set[tuple[int, int]]:
    src, dst = graph[t].arcs()
    nodes = graph[t].nodes
    return {(int(nodes[s]), int(nodes[d])) for s, d in zip(src, dst, strict=True) if s != d}


@pytest.mark.parametrize(("directed", "both"), [(True, False), (True, True), (False, False)])
def test_every_edge_is_a_positive_of_its_source_or_of_both_ends(directed: bool, both: bool) -> None:
    graph = random_graph(directed=directed)
    problem = LinkRanking(both_directions=both).bind(graph)
    for t in problem.split.test:
        examples = examples_at(problem, t)
        found = list(zip(*(each.tolist() for each in edge_ends(examples)), strict=True))
        expected = arcs_of(graph, t + 1)
        if both or not directed:
            expected |= {(d, s) for s, d in expected}
        assert found == sorted(expected)
        assert problem.coverage(range(t, t + 1), [examples]) == {"coverage": 1.0, "edges": len(expected)}


def test_candidates_are_all_nodes_or_a_sample_with_the_destinations() -> None:
    problem = LinkRanking(negatives=5).bind(random_graph())
    examples = examples_at(problem, 6)
    assert examples.candidates is not None
    assert examples.candidates.tolist() == list(range(NODES))
    sampled = [examples_at(problem, 2, epoch) for epoch in (0, 1)]
    for each in sampled:
        assert each.candidates is not None
        assert each.log_weight is not None
        destinations = set(edge_ends(each)[1].tolist())
        assert destinations <= set(each.candidates.tolist())
        for node, weight in zip(each.candidates.tolist(), each.log_weight.tolist(), strict=True):
            assert weight == (0 if node in destinations else pytest.approx(np.log(NODES / 5)))
    assert sampled[0].candidates.tolist() != sampled[1].candidates.tolist()  # type: ignore[union-attr]


def score_grid(problem: LinkRankingProblem, examples: Examples) -> tuple[PairDecoder, torch.Tensor, GridScorer]:
    torch.manual_seed(3)
    head = problem.head(WIDTH).double()
    assert isinstance(head, PairDecoder)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    z, grid = torch.randn(NODES, WIDTH, dtype=torch.float64), examples.grids[0].to(torch.device("cpu"), torch.float64)
    return head, z, GridScorer(head, z, replace(grid, rows=(grid.sources, grid.candidates)))


@pytest.mark.parametrize("options", [{}, {"pair_features": False}, {"from_history": False}])
def test_scores_of_a_grid_are_those_of_listed_pairs(options: dict[str, Any]) -> None:
    """The decoder of single pairs, with features of single pairs, is another path to the same scores."""
    problem = LinkRanking(**options).bind(random_graph())
    head, z, scorer = score_grid(problem, examples_at(problem, 6))
    src, dst = (
        each.numpy().ravel() for each in torch.meshgrid(scorer.grid.sources, scorer.grid.candidates, indexing="ij")
    )
    features = problem.history.features(6, src, dst)
    arguments = (torch.from_numpy(features).double(),) if problem.task.pair_features else ()
    expected = head(z, torch.from_numpy(src), torch.from_numpy(dst), *arguments).detach().numpy()
    if problem.offset_weights is not None:
        described = problem.history.describe(ListedPairs.of_snapshot(6, src, dst))
        expected = expected + described.design(np.array([0, len(src)])).matrix() @ problem.offset_weights
    found = torch.cat([block for _, block in scorer.blocks()]).detach().numpy().ravel()
    other = src != dst  # a pair of a node with itself is never scored
    np.testing.assert_allclose(found[other], expected[other], rtol=1e-9)


def test_loss_is_the_weighted_softmax_over_the_negatives_of_each_source() -> None:
    problem = LinkRanking(negatives=6).bind(random_graph())
    examples = examples_at(problem, 2, 0)
    head, z, scorer = score_grid(problem, examples)
    scores = scorer.scores(0, len(scorer.grid.sources)).detach().numpy()
    positives: dict[int, set[int]] = {}
    for r, c in scorer.grid.positive.T.tolist():
        positives.setdefault(r, set()).add(c)
    expected = 0.0
    assert examples.log_weight is not None
    for r, columns in positives.items():
        source = int(scorer.grid.sources[r])
        others = [c for c in range(scores.shape[1]) if c not in columns and int(scorer.grid.candidates[c]) != source]
        total = sum(np.exp(scores[r, c] + float(examples.log_weight[c])) for c in others)
        expected += np.mean([-np.log(np.exp(scores[r, c]) / (np.exp(scores[r, c]) + total)) for c in columns])
    found = problem.loss(head.softmax_log_odds(z, scorer.grid), examples)
    assert float(found.detach()) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("pair_features", [True, False])
def test_compiled_log_odds_and_their_gradients_equal_those_of_scores_in_memory(
    pair_features: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = LinkRanking(negatives=6, pair_features=pair_features).bind(random_graph())
    head, z, scorer = score_grid(problem, examples_at(problem, 2, 0))
    assert scorer.grid.related.shape[1]
    z.requires_grad_()
    inputs, found = [z, *head.parameters()], []
    for is_compiled in (True, False):
        monkeypatch.setattr(GridScorer, "is_compiled", is_compiled)
        log_odds = head.softmax_log_odds(z, scorer.grid)
        gradients = torch.autograd.grad(log_odds.square().sum(), inputs, allow_unused=True, materialize_grads=True)
        found.append([log_odds, *gradients])
    torch.testing.assert_close(*found)


def test_gradients_of_many_positives_have_the_same_bits_in_every_pass_on_several_threads() -> None:
    rng = torch.Generator().manual_seed(0)
    num_nodes, num_pairs = 60, 3000  # with fewer numbers torch adds gradients of rows one after the other
    row, column = torch.nonzero(torch.rand(num_nodes, num_nodes, generator=rng) < 0.9).T[:, :num_pairs]
    head = PairDecoder(WIDTH, 0, 2)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=rng)
    nodes, z = torch.arange(num_nodes), torch.randn(num_nodes, WIDTH, generator=rng)
    grid = CandidateGrid(
        sources=nodes,
        candidates=nodes,
        positive=torch.stack([row, column]),
        related=torch.stack([row, column])[:, ::2],
        related_features=torch.ones(len(row[::2]), 2),
        rows=(nodes, nodes),
    )
    before, found = torch.get_num_threads(), []
    torch.set_num_threads(4)
    try:
        for _ in range(8):
            log_odds = head.softmax_log_odds(z, grid).square().sum()
            found.append(
                torch.cat([each.ravel() for each in torch.autograd.grad(log_odds, list(head.parameters())[1:])])
            )
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(each, found[0]) for each in found)


def plain_metrics(
    scores: Sequence[np.ndarray[Any, Any]], sources: list[list[int]], truth: list[list[set[int]]]
) -> dict[str, float]:
    """Metrics from sorted lists, without ties."""
    reciprocal, best, precision, area, by_snapshot, ndcg = [], [], [], [], [], []
    for rows, nodes, positives in zip(scores, sources, truth, strict=True):
        of_rows = []
        for row, _, own in zip(rows, nodes, positives, strict=True):
            order = np.argsort(-row).tolist()
            negatives = [c for c in order if c not in own]
            filtered = [1 + sum(row[c] > row[p] for c in negatives) for p in sorted(own, key=lambda p: -row[p])]
            places = [1 + order.index(p) for p in sorted(own, key=lambda p: -row[p])]
            reciprocal += [1 / rank for rank in filtered]
            best.append(1 / min(filtered))
            precision.append(np.mean([(k + 1) / place for k, place in enumerate(places)]))
            area.append(np.mean([sum(row[p] > row[c] for c in negatives) / len(negatives) for p in own]))
            of_rows.append(np.mean([1 / place for place in places]))
            ideal = sum(1 / math.log2(1 + k) for k in range(1, 1 + min(len(own), 10)))
            ndcg.append(sum(1 / math.log2(1 + place) for place in places if place <= 10) / ideal)
        by_snapshot.append(np.mean(of_rows))
    return {
        "mrr": float(np.mean(reciprocal)),
        "best_mrr": float(np.mean(best)),
        "map": float(np.mean(precision)),
        "auc": float(np.mean(area)),
        "ndcg@10": float(np.mean(ndcg)),
        "source_mrr": float(np.mean(by_snapshot)),
    }


def test_metrics_are_those_of_sorted_lists() -> None:
    rng = np.random.default_rng(2)
    scores = [rng.normal(size=(4, 30)), rng.normal(size=(2, 30))]
    truth = [[{1, 3}, {0}, {2, 5, 6}, set(range(3, 18))], [{4}, {0, 1}]]
    ranked, sources = [], []
    for rows, positives in zip(scores, truth, strict=True):
        values, owners = [], []
        for number, (row, own) in enumerate(zip(rows, positives, strict=True)):
            negatives = [row[c] for c in range(30) if c not in own]
            for p in sorted(own):
                values.append([row[p], sum(v > row[p] for v in negatives), 0, len(negatives)])
                owners.append(10 * number)
        ranked.append(np.array(values))
        sources.append(np.array(owners))
    found = rank_metrics(ranked, sources)
    for name, value in plain_metrics(scores, [list(range(4)), [0, 1]], truth).items():
        assert found[name] == pytest.approx(value), name


def test_baselines_rank_by_the_scores_of_listed_pairs() -> None:
    problem = LinkRanking(both_directions=True).bind(random_graph())
    found = problem.baselines("test")
    assert set(found) == {"last snapshot", "edgebank", "popularity", "most recent", "history"}
    for name in ("last snapshot", "edgebank", "popularity", "most recent"):
        ranked, sources = [], []
        for t in problem.split.test:
            src, dst = edge_ends(examples_at(problem, t))
            values = []
            for s, d in zip(src, dst, strict=True):
                own = set(dst[src == s].tolist())
                others = np.array([v for v in range(NODES) if v not in own and v != s])
                listed = problem.history.scores(t, np.full(1 + len(others), s), np.append(d, others))[name]
                values.append([listed[0], (listed[1:] > listed[0]).sum(), (listed[1:] == listed[0]).sum(), len(others)])
            ranked.append(np.array(values))
            sources.append(src)
        assert found[name] == pytest.approx(rank_metrics(ranked, sources)), name


PLANS: dict[str, Plan] = {name: preset(name) for name in ("relay", "pss-ts", "hash", "psg")}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("model", ["tgcn", "evolvegcn-o"])
def test_ranks_train_as_one_rank_does(name: str, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = LinkRanking(negatives=4, both_directions=True)
    trainer = Trainer(short_graph(), model, task)
    trainer.same_head(monkeypatch)
    plan = PLANS[name]
    one_rank = replace(plan, schedule=Gathered(inner=plan.schedule, num_ranks=3))
    (one,) = trainer.train(one_rank, 1, epochs=2)
    assert_same(trainer.train(plan, 3, epochs=2), one)


def test_windows_carry_the_embeddings_of_absent_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores of a model without states do not depend on how snapshots are cut into windows."""
    trainer = Trainer(random_graph(), "gcn", LinkRanking(negatives=4))
    trainer.same_head(monkeypatch)
    whole, cut = (trainer.train(preset("relay"), 1, epochs=1, lr=1e-9, window=window)[0] for window in (None, 2))
    assert cut.test == pytest.approx(whole.test, rel=1e-5)


def test_sampled_batches_are_refused() -> None:
    with pytest.raises(OptionError):
        train(random_graph(), "tgcn", LinkRanking(), plan="distdy", epochs=1)


def test_unknown_metric_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError):
        LinkRanking(metric="sourcemrr")


def test_numbers_of_snapshots_must_leave_some_to_test() -> None:
    assert LinkRanking(train=4, validation=2).bind(random_graph()).split.test == range(6, 7)
    with pytest.raises(InputError):
        LinkRanking(train=4, validation=3).bind(random_graph())
