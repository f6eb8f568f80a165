"""Negatives of evaluation: from the past, from a file, and candidates of training."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from strobe.errors import BadRowsError, InputError, OptionError, UnknownNameError
from strobe.graph import DynamicGraph, from_edges
from strobe.graph.names import NodeNames
from strobe.tasks import LinkPrediction, LinkRanking
from strobe.tasks.base import edge_ends
from strobe.tasks.link_prediction import LinkProblem
from strobe.tasks.pairs import sample_of_lists

NODES, SNAPSHOTS, COUNT = 14, 9, 4
Pair = tuple[int, int]


def random_edges() -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    return [rng.integers(0, NODES, (2, 22)) for _ in range(SNAPSHOTS)]


def make_graph(edges: list[np.ndarray[Any, Any]] | None = None, *, directed: bool = True) -> DynamicGraph:
    return from_edges(edges or random_edges(), num_nodes=NODES, directed=directed)


def arcs(graph: DynamicGraph, t: int) -> set[Pair]:
    nodes = graph[t].nodes
    return {(int(nodes[s]), int(nodes[d])) for s, d in zip(*graph[t].arcs(), strict=True) if s != d}


def groups(problem: LinkProblem, t: int, epoch: int | None = None) -> list[tuple[Pair, list[int]]]:
    """Every positive and its negatives."""
    examples = problem.examples(t, epoch)
    assert examples is not None
    found: list[tuple[Pair, list[int]]] = []
    for s, d, y in zip(*(e.tolist() for e in edge_ends(examples)), examples.labels.tolist(), strict=True):
        if y:
            found.append(((s, d), []))
        else:
            assert s == found[-1][0][0]
            found[-1][1].append(d)
    return found


@pytest.mark.parametrize("history", [True, False])
@pytest.mark.parametrize("ahead", [1, 2])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("sampling", ["historical", "inductive"])
def test_negatives_are_past_destinations_filled_with_others(
    sampling: str, directed: bool, ahead: int, history: bool
) -> None:
    graph = make_graph(directed=directed)
    task = LinkPrediction(eval_sampling=sampling, eval_negatives=COUNT, ahead=ahead, pair_features=history)
    problem = replace(task, from_history=history).bind(graph)
    trained = set().union(*(arcs(graph, t) for t in range(problem.split.train[-1] + ahead + 1)))
    num_past = 0
    for t in problem.split.test:
        target = arcs(graph, t + ahead)
        past = set().union(*(arcs(graph, k) for k in range(t + ahead))) - target
        past -= trained if sampling == "inductive" else set()
        for (source, _), negatives in groups(problem, t):
            wanted = {d for s, d in past if s == source}
            number = min(len(wanted), COUNT)
            num_past += number
            assert len(negatives) == COUNT
            assert set(negatives[:number]) <= wanted
            assert len(set(negatives[:number])) == number
            assert not any((source, d) in target or d == source for d in negatives)
    assert num_past > 0


@pytest.mark.parametrize("sampling", ["historical", "inductive"])
def test_later_snapshots_and_training_negatives_do_not_change(sampling: str) -> None:
    task = LinkPrediction(train=4, validation=1, candidates="seen", eval_sampling=sampling)
    edges = random_edges()
    changed = [*edges[:7], *(np.flip(each) for each in edges[7:])]
    one, other = (task.bind(make_graph(each)) for each in (edges, changed))
    assert groups(one, 5) == groups(other, 5)  # the target is snapshot 6
    uniform = LinkPrediction(train=4, validation=1, candidates="seen").bind(make_graph(edges))
    assert groups(one, 2, 3) == groups(uniform, 2, 3)
    assert groups(one, 5) != groups(uniform, 5)


def test_samples_of_lists_are_distinct_and_uniform() -> None:
    rng = np.random.default_rng(0)
    has, chosen = sample_of_lists(np.repeat([0, 2, 5], 3000), 3, rng)
    assert has.sum(1).tolist() == np.repeat([0, 2, 3], 3000).tolist()
    assert all(sorted(row[:2]) == [0, 1] for row in chosen[3000:6000].tolist())
    assert all(len(set(row)) == 3 for row in chosen[6000:].tolist())
    np.testing.assert_allclose(np.bincount(chosen[6000:].ravel()) / 3000, 0.6, atol=0.04)


def listed(graph: DynamicGraph, problem: LinkProblem) -> dict[str, list[int]]:
    """Two negatives for every source of snapshots in evaluation."""
    rows: dict[str, list[int]] = {"snapshot": [], "source": [], "destination": []}
    for t in (*problem.split.validation, *problem.split.test):
        edges = arcs(graph, t + 1)
        for source in sorted({s for s, _ in edges}):
            for d in [d for d in range(NODES) if d != source and (source, d) not in edges][:2]:
                for name, value in zip(rows, (t + 1, source, d), strict=True):
                    rows[name].append(value)
    return rows


def write(path: Path, rows: dict[str, list[int]]) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **{name: np.array(column) for name, column in rows.items()})  # type: ignore[arg-type]
    elif path.suffix == ".parquet":
        pyarrow.parquet.write_table(pa.table(rows), path)
    else:
        lines = [",".join(rows), *(",".join(map(str, row)) for row in zip(*rows.values(), strict=True))]
        path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("by", ["snapshot", "time"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_negatives_of_a_file_are_all_that_it_lists(tmp_path: Path, suffix: str, by: str, directed: bool) -> None:
    graph = make_graph(directed=directed)
    rows = listed(graph, LinkPrediction().bind(graph))
    named: dict[str, list[Any]] = dict(rows)
    if by == "time":
        named = {"time": [graph[t].time for t in named.pop("snapshot")], **named}
    path = write(tmp_path / f"negatives{suffix}", named)
    problem = LinkPrediction(eval_sampling=str(path)).bind(graph)
    for t in problem.split.test:
        for (source, _), negatives in groups(problem, t):
            pairs = zip(rows["snapshot"], rows["source"], rows["destination"], strict=True)
            assert negatives == [d for k, s, d in pairs if (k, s) == (t + 1, source)]


def test_names_of_a_file_are_those_of_the_graph(tmp_path: Path) -> None:
    names = [f"node {k}" for k in range(NODES)]
    plain = make_graph()
    graph = replace(plain, names=NodeNames.from_names(names, in_any_order=True))
    rows: dict[str, list[Any]] = listed(plain, LinkPrediction().bind(plain))
    for end in ("source", "destination"):
        rows[end] = [names[node] for node in rows[end]]
    problem = LinkPrediction(eval_sampling=str(write(tmp_path / "named.csv", rows))).bind(graph)
    ids = LinkPrediction(eval_sampling=str(write(tmp_path / "ids.csv", listed(plain, problem)))).bind(plain)
    t = problem.split.test[0]
    assert groups(problem, t) == groups(ids, t)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("snapshot", 99),
        ("snapshot", "x"),
        ("source", NODES),
        ("destination", -1),
        ("destination", "same"),
        ("source", ""),
    ],
)
def test_bad_line_of_a_file_is_named(tmp_path: Path, column: str, value: Any) -> None:
    graph = make_graph()
    rows: dict[str, list[Any]] = listed(graph, LinkPrediction().bind(graph))
    rows[column][3] = rows["source"][3] if value == "same" else value
    path = write(tmp_path / "negatives.csv", rows)
    with pytest.raises(BadRowsError, match="line 5") as error:
        LinkPrediction(eval_sampling=str(path)).bind(graph)
    assert str(path) in str(error.value)


def test_damaged_and_incomplete_files_are_refused(tmp_path: Path) -> None:
    graph = make_graph()
    rows = listed(graph, LinkPrediction().bind(graph))
    for suffix in (".csv", ".parquet", ".npz"):
        path = write(tmp_path / f"negatives{suffix}", rows)
        path.write_bytes(path.read_bytes()[: len(path.read_bytes()) // 2] + b"\xff,1")
        with pytest.raises(InputError, match=path.name):
            LinkPrediction(eval_sampling=str(path)).bind(graph)
    with pytest.raises(InputError, match="absent"):
        LinkPrediction(eval_sampling=str(tmp_path / "absent.csv")).bind(graph)
    some = write(tmp_path / "some.csv", {name: column[2:] for name, column in rows.items()})
    with pytest.raises(InputError, match="without negatives"):
        LinkPrediction(eval_sampling=str(some)).bind(graph)
    headless = write(tmp_path / "headless.csv", {"when": rows["snapshot"], "source": rows["source"]})
    with pytest.raises(InputError, match="destination, snapshot or time"):
        LinkPrediction(eval_sampling=str(headless)).bind(graph)
    s, d = next(iter(arcs(graph, rows["snapshot"][0])))
    wrong = {"snapshot": [*rows["snapshot"], rows["snapshot"][0]], "source": [*rows["source"], s]}
    edge = write(tmp_path / "edge.csv", wrong | {"destination": [*rows["destination"], d]})
    with pytest.raises(InputError, match="is an edge"):
        LinkPrediction(eval_sampling=str(edge)).bind(graph)


def test_candidates_may_be_the_destinations_of_training() -> None:
    graph = make_graph([each[:, :5] for each in random_edges()])
    problem = LinkPrediction(train=2, validation=1, candidates="destinations").bind(graph)
    expected = {d for t in (0, 1, 2) for _, d in arcs(graph, t)}
    candidates = problem.candidates(5)
    assert candidates.nodes_at(np.arange(candidates.num_nodes)).tolist() == sorted(expected)
    assert len(expected) < NODES


def test_values_survive_json_and_unknown_names_are_refused() -> None:
    task = LinkPrediction(eval_sampling="historical", candidates="destinations")
    assert LinkPrediction(**json.loads(json.dumps(vars(task)))) == task
    with pytest.raises(UnknownNameError, match="historical"):
        LinkPrediction(eval_sampling="historic")
    with pytest.raises(OptionError):
        LinkRanking(eval_sampling="historical")
