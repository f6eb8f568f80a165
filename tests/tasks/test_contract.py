"""What holds for every task, over ordinary and awkward graphs."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from strobe.errors import StrobeError, UnknownNameError
from strobe.graph import DynamicGraph, PerCell, Static, from_edges
from strobe.tasks import (
    TASKS,
    Examples,
    LinkPrediction,
    LinkRanking,
    NodeClassification,
    NodeRegression,
    Problem,
    Task,
    make_task,
    task_for,
)
from strobe.tasks.grid import rank_in_grid
from strobe.tasks.heads import GridScorer, PairDecoder
from strobe.tasks.split import PARTS
from tests.support.graphs import AWKWARD

VARIANTS: dict[str, tuple[Task, str]] = {
    "degrees": (NodeRegression(), "none"),
    "degrees, three ahead, from the mean": (NodeRegression(ahead=3, from_last=False), "none"),
    "features, three ahead": (NodeRegression(target="features", horizon=3), "features"),
    "a feature": (NodeRegression(target="features", column=1, ahead=2), "features"),
    "targets": (NodeRegression(target="labels"), "targets"),
    "targets known late": (NodeRegression(target="labels", label_delay=3), "targets"),
    "targets ahead": (NodeRegression(target="labels", ahead=2, label_delay=0, from_last=True), "targets"),
    "classes": (NodeClassification(), "classes"),
    "classes ahead": (NodeClassification(ahead=1, label_delay=1, train=0.5), "classes"),
    "classes of nodes": (NodeClassification(), "classes of nodes"),
    "links": (LinkPrediction(), "none"),
    "links, two ahead, sampled": (LinkPrediction(ahead=2, max_pairs=9, negatives=2), "none"),
    "links of an undirected graph": (LinkPrediction(eval_negatives=3), "undirected"),
    "ranked links": (LinkRanking(negatives=7, both_directions=True), "none"),
    "ranked links, sampled": (LinkRanking(ahead=2, max_pairs=9, eval_negatives=9, metric="best_mrr"), "undirected"),
}
"""Every task with options that matter, and the kind of graph it is asked of."""

SNAPSHOTS, NODES = 12, 25


@cache
def graph_of(kind: str, future: int = 0, known: int = SNAPSHOTS) -> DynamicGraph:
    """A random graph whose nodes come and go; snapshots from ``known`` on depend on ``future``."""
    now, later = np.random.default_rng(1), np.random.default_rng([2, future])
    edges, nodes, y, x = [], [], [], []
    for t in range(SNAPSHOTS):
        rng = now if t < known else later
        present = np.sort(rng.choice(NODES, 20, replace=False))
        nodes.append(present)
        edges.append(present[rng.integers(0, 20, (2, 40))])
        values = rng.normal(size=(20, 2)) if kind == "targets" else rng.integers(-1, 3 if t < known else 9, 20)
        y.append(np.where(rng.random((20, 2)) < 0.1, np.nan, values) if kind == "targets" else values)
        x.append(rng.normal(size=(20, 2)).astype(np.float32))
    features = x if kind == "features" else None
    labels = np.arange(NODES) % 4 if kind == "classes of nodes" else y if kind in ("classes", "targets") else None
    return from_edges(edges, num_nodes=NODES, nodes=nodes, x=features, y=labels, directed=kind != "undirected")


def bound(name: str, **options: Any) -> Problem:
    task, kind = VARIANTS[name]
    return task.bind(graph_of(kind), **options)


def shown(examples: Examples | None) -> Any:
    """Examples as plain lists, to compare."""
    if examples is None:
        return None
    rows = None if examples.cell_index is None else [row.tolist() for row in examples.cell_index]
    pairs = None if examples.edge_label_index is None else examples.edge_label_index.tolist()
    return rows, pairs, examples.labels.tolist(), None if examples.offset is None else examples.offset.tolist()


def all_shown(problem: Problem, part: str, epoch: int | None = None) -> list[Any]:
    return [shown(problem.examples(t, epoch)) for t in problem.split.part(part)]


def evaluated(problem: Problem, part: str) -> list[Examples]:
    return [each for t in problem.split.part(part) if (each := problem.examples(t)) is not None]


def answers_for(problem: Problem, examples: Examples, *, ranked: bool = False) -> torch.Tensor:
    """What a head of random weights says to random embeddings; ``ranked``: as metrics read it."""
    torch.manual_seed(0)
    head = problem.head(6).double()
    if examples.grids:
        assert isinstance(head, PairDecoder)
        z, grid = torch.randn(NODES, 6, dtype=torch.float64), examples.grids[0].to(torch.device("cpu"), torch.float64)
        scorer = GridScorer(head, z, replace(grid, rows=(grid.sources, grid.candidates)))
        return rank_in_grid(grid, scorer.blocks()) if ranked else head.softmax_log_odds(z, scorer.grid)
    rows = examples.cell_index or tuple(() if examples.edge_label_index is None else examples.edge_label_index)
    most = 1 + max((int(row.max()) for row in rows), default=len(examples) - 1)
    features = () if examples.features is None else (examples.features,)
    said: torch.Tensor = head(torch.randn(most, 6, dtype=torch.float64), *rows, *features)
    return said


def test_every_task_is_among_the_variants() -> None:
    assert {type(task) for task, _ in VARIANTS.values()} == set(TASKS.values())
    assert set(TASKS) == {"regression", "classification", "link-prediction", "link-ranking"}


@pytest.mark.parametrize("name", VARIANTS)
def test_task_survives_json(name: str) -> None:
    task = VARIANTS[name][0]
    again = make_task(**json.loads(json.dumps(task.to_json())))
    assert again == task
    assert again.to_json() == task.to_json()


@pytest.mark.parametrize("name", VARIANTS)
def test_problem_bound_with_its_state_has_equal_examples(name: str) -> None:
    first = bound(name, seed=7)
    again = bound(name, state=json.loads(json.dumps(first.state())))
    assert again.state() == first.state()
    assert again.graph.features == first.graph.features
    for part in PARTS:
        assert all_shown(again, part) == all_shown(first, part)
        assert again.baselines(part) == first.baselines(part)
    assert all_shown(again, "train", 3) == all_shown(first, "train", 3)


@pytest.mark.parametrize("name", VARIANTS)
def test_examples_depend_on_the_seed_and_not_on_the_order_of_calls(name: str) -> None:
    first, again = bound(name, seed=7), bound(name, seed=7)
    backwards = [shown(again.examples(t, 1)) for t in reversed(again.split.train)]
    assert backwards[::-1] == all_shown(first, "train", 1)
    if not first.resamples_each_epoch:
        assert all_shown(first, "train", 0) == all_shown(first, "train", 1) == all_shown(first, "train")


@pytest.mark.parametrize("name", VARIANTS)
def test_later_snapshots_do_not_affect_training(name: str) -> None:
    task, kind = VARIANTS[name]
    whole = task.bind(graph_of(kind))
    known = whole.split.validation.start + (
        whole.target_delay > 0
    )  # snapshots read when the first prediction is validated
    problems = [task.bind(graph_of(kind, future, known)) for future in (1, 2)]
    assert graph_of(kind, 1, known) != graph_of(kind, 2, known)
    assert problems[0].state() == problems[1].state()
    for epoch in (None, 0, 1):
        assert all_shown(problems[0], "train", epoch) == all_shown(problems[1], "train", epoch)
    x = [[snapshot.x for snapshot in problem.graph[: problem.split.train.stop]] for problem in problems]
    assert all(np.array_equal(a, b) for a, b in zip(*x, strict=True))


@pytest.mark.parametrize("name", VARIANTS)
def test_cell_index_is_within_the_snapshot(name: str) -> None:
    problem = bound(name)
    for part in PARTS:
        for t in problem.split.part(part):
            examples = problem.examples(t)
            if examples is None:
                continue
            if examples.edge_label_index is not None:
                assert examples.edge_label_index.dtype == torch.int64
                assert int(examples.edge_label_index.min()) >= 0
                assert int(examples.edge_label_index.max()) < problem.graph.num_nodes
                continue
            if examples.cell_index is None:
                assert len(examples) == problem.graph[t].num_nodes
                continue
            for rows in examples.cell_index:
                assert rows.dtype == torch.int64
                assert len(rows) == len(examples)
                assert 0 <= int(rows.min()) <= int(rows.max()) < problem.graph[t].num_nodes
            assert examples.offset is None or len(examples.offset) == len(examples)


@pytest.mark.parametrize("name", VARIANTS)
def test_loss_is_a_sum_with_gradients(name: str) -> None:
    problem = bound(name)
    examples = evaluated(problem, "train")[0]
    answers = answers_for(problem, examples).detach().requires_grad_()
    whole = problem.loss(answers, examples)
    whole.backward()
    assert answers.grad is not None
    assert bool((answers.grad != 0).any())
    assert whole.shape == ()
    half = len(examples) // 2
    parts = []
    for cut in (slice(half), slice(half, None)):
        base = None if examples.offset is None else examples.offset[cut]
        parts.append(problem.loss(answers[cut], replace(examples, labels=examples.labels[cut], offset=base)))
    torch.testing.assert_close(sum(parts), whole.detach(), check_dtype=False)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("part", PARTS)
def test_metrics_include_the_metric_of_the_task(name: str, part: str) -> None:
    problem = bound(name)
    examples = evaluated(problem, part)
    scored = problem.metrics([answers_for(problem, each, ranked=True) for each in examples], examples)
    assert problem.metric in scored
    assert all(np.isfinite(value) and type(value) is float for value in scored.values())
    for found in problem.baselines(part).values():
        assert set(found) == set(scored)
    assert problem.baselines(part)
    assert problem.counts(part)["examples"] == sum(map(len, examples))


@pytest.mark.parametrize("name", VARIANTS)
def test_perfect_predictions_score_best(name: str) -> None:
    problem = bound(name)
    examples = evaluated(problem, "train")
    right = []
    for each in examples:
        if isinstance(problem.task, NodeClassification):  # type: ignore[attr-defined]
            right.append((each.labels[:, None] == torch.from_numpy(problem.classes)).double())  # type: ignore[attr-defined]
        elif isinstance(problem.task, LinkRanking):  # type: ignore[attr-defined]
            right.append(torch.tensor([1.0, 0.0, 0.0, 9.0]).repeat(len(each), 1))  # no negative has a higher score
        elif isinstance(problem.task, LinkPrediction):  # type: ignore[attr-defined]
            right.append(1e3 * each.labels.double())  # whatever scores start from
        else:
            right.append(each.labels.double())
    best = problem.metrics(right, examples)[problem.metric]
    assert best == pytest.approx(1 if problem.higher_is_better else 0, abs=1e-12)


@pytest.mark.parametrize("task", [NodeRegression(target="labels"), *(known() for known in TASKS.values())])
@pytest.mark.parametrize("awkward", AWKWARD)
@pytest.mark.parametrize("repaired", [False, True])
def test_awkward_graphs_bind_or_are_refused(task: Task, awkward: str, repaired: bool) -> None:
    graph = longer(awkward) if repaired else AWKWARD[awkward].build()
    if not _binds(task, graph):
        with pytest.raises(StrobeError, match=r"(\S+ ){4}"):  # a sentence, not a word
            task.bind(graph)
        return
    problem = task.bind(graph)
    for part in PARTS:
        examples = evaluated(problem, part)
        answers = [answers_for(problem, each) for each in examples]
        scored = problem.metrics([answers_for(problem, each, ranked=True) for each in examples], examples)
        assert (problem.metric in scored) == bool(examples)
        assert bool(problem.baselines(part)) == bool(examples)
        assert problem.counts(part)["snapshots"] == len(examples)
        assert all(bool(torch.isfinite(problem.loss(a, e))) for a, e in zip(answers, examples, strict=True))


@pytest.mark.parametrize("name", VARIANTS)
def test_newest_snapshot_has_unlabeled_examples(name: str) -> None:
    problem = bound(name)
    t = len(problem.graph) - 1
    asked = problem.unlabeled_examples(t)
    assert asked is not None
    assert bool(((asked.labels == -1) | torch.isnan(asked.labels)).all())
    if asked.edge_label_index is None:
        assert asked.cell_index is None
        assert len(asked) == problem.graph[t].num_nodes
    else:
        src, dst, _ = problem.graph[t].edges()
        pairs = list(zip(*asked.edge_label_index.tolist(), strict=True))
        assert sorted(pairs) == sorted({(int(u), int(v)) for u, v in zip(src, dst, strict=True) if u != v})
    table = problem.table(answers_for(problem, asked), asked, t)
    said = [column for key, column in table.items() if not key.startswith("actual")]
    assert all(bool(np.isfinite(column).all()) for column in said)


@pytest.mark.parametrize("name", VARIANTS)
def test_as_test_only_has_all_examples(name: str) -> None:
    problem = bound(name)
    whole = problem.as_test_only()
    times = range(problem.split.test.stop)
    assert (len(whole.split.train), len(whole.split.validation), whole.split.test) == (0, 0, times)
    assert problem.split.train  # the one it comes from stays as it is
    if VARIANTS[name][1] == "classes of nodes":
        assert whole.counts("test")["examples"] == sum(problem.graph[t].num_nodes for t in times)
    else:
        apart = [t for t in times if problem.split.part_of(t) is None]  # their targets lie in the next part
        assert len(apart) == 2 * problem.split.gap
        scored = all_shown(whole, "test")
        assert all(scored[t] == shown(problem.examples(t)) for t in times if t not in apart)


def longer(awkward: str) -> DynamicGraph:
    """Long enough for three parts, and without features, of which some are NaN."""
    plain = AWKWARD[awkward]
    return replace(plain, snapshots=plain.snapshots * 5).build().with_features(None)


@pytest.mark.parametrize("name", TASKS)
def test_some_awkward_graphs_do_bind(name: str) -> None:
    assert any(_binds(TASKS[name](), longer(awkward)) for awkward in AWKWARD)


def _binds(task: Task, graph: DynamicGraph) -> bool:
    try:
        task.bind(graph)
    except StrobeError:
        return False
    return True


def test_labels_of_test_nodes_do_not_affect_training() -> None:
    graph = graph_of("classes of nodes")
    problem = NodeClassification().bind(graph)
    asked: set[int] = set()
    for t in problem.split.test:
        examples = problem.examples(t)
        assert examples is not None
        assert examples.cell_index is not None
        asked |= set(graph[t].nodes[examples.cell_index[0].numpy()].tolist())
    labels = np.arange(NODES) % 4
    labels[sorted(asked)] = 77
    other = NodeClassification().bind(graph.with_labels(Static(labels)))
    assert other.state() == problem.state()
    assert all_shown(other, "train") == all_shown(problem, "train")
    assert all_shown(other, "test") != all_shown(problem, "test")


def test_default_task_follows_the_labels() -> None:
    graph = graph_of("none")
    assert task_for(graph) == NodeRegression()
    assert task_for(graph_of("classes")) == NodeClassification()
    assert task_for(graph_of("classes of nodes")) == NodeClassification()
    assert task_for(graph_of("targets")) == NodeRegression(target="labels")
    several = PerCell(np.zeros((graph.num_cells, 3), np.int64))
    assert task_for(graph.with_labels(several)) == NodeRegression(target="labels")
    one = PerCell(np.zeros((graph.num_cells, 1), np.int64))
    assert task_for(graph.with_labels(one)) == NodeClassification()


def test_unknown_task_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'link-prediction'"):
        make_task("link_prediction")
    with pytest.raises(UnknownNameError, match="did you mean 'negatives'"):
        make_task("link-prediction", negative=3)
