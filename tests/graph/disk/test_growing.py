"""A graph that grows on disk is at every moment the graph of the snapshots it has."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from typer.testing import CliRunner

from strobe.cli.main import app
from strobe.errors import FormatError, InputError, OptionError, UnknownNameError
from strobe.graph import (
    Concatenated,
    Degrees,
    DynamicGraph,
    Edges,
    GraphBuilder,
    GrowingGraph,
    NodeNames,
    PerCell,
    RandomSignature,
    Standardized,
    Static,
    open_graph,
)
from strobe.store import Delta
from strobe.store.delta.strategy import is_mapped
from tests.support.graphs import AWKWARD, PlainGraph, PlainSnapshot, dynamic_graphs
from tests.support.kills import killed_before_step


def _append(growing: GrowingGraph, plain: PlainGraph, shot: PlainSnapshot, num_nodes: int) -> None:
    growing.append(
        Edges(
            [u for u, _, _ in shot.edges],
            [v for _, v, _ in shot.edges],
            [w for _, _, w in shot.edges] if plain.weighted else None,
        ),
        nodes=shot.nodes,
        time=shot.time,
        x=None if shot.x is None else np.array([shot.x[v] for v in shot.nodes], np.float32).reshape(-1, 2),
        y=None if shot.y is None else np.array([shot.y[v] for v in shot.nodes] or np.empty(0, np.int64)),
        num_nodes=num_nodes,
    )


def _without_nodes_rows(plain: PlainGraph) -> PlainGraph:
    """The same graph without what is given once per node: a graph that grows has no place for it."""
    return PlainGraph(
        plain.num_nodes, plain.snapshots, directed=plain.directed, weighted=plain.weighted, derived=plain.derived
    )


def _check_growth(plain: PlainGraph, place: Path) -> None:
    plain = _without_nodes_rows(plain)
    expected = plain.build()
    grown = GrowingGraph.create(place, directed=plain.directed, weighted=plain.weighted, features=plain.derived)
    watcher, known = GrowingGraph(place), 0
    for t, shot in enumerate(plain.snapshots):
        last = t == len(plain.snapshots) - 1
        known = plain.num_nodes if last else max([known, *(v + 1 for v in shot.nodes)])
        _append(grown, plain, shot, known)
        opened = watcher.open()
        assert len(watcher) == len(opened) == t + 1
        assert opened.num_nodes == known
        assert opened.times == expected.times[: t + 1]
        assert list(opened) == list(expected[: t + 1])
        assert opened.num_cells == expected[: t + 1].num_cells
        assert opened.num_edges == expected[: t + 1].num_edges
        assert opened.num_arcs == expected[: t + 1].num_arcs
    for t in range(len(plain.snapshots)):
        assert list(watcher.open(t)) == list(expected[:t])
    grown.close()
    if plain.snapshots:
        assert open_graph(place) == expected
        assert open_graph(place, verify=True).save(place.with_name("saved")) == expected
        assert open_graph(place)[1:].save(place.with_name("saved"), overwrite=True) == expected[1:]


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_graphs_survive_growing(name: str, tmp_path: Path) -> None:
    _check_growth(AWKWARD[name], tmp_path / "grown")


@settings(deadline=None, max_examples=12)
@given(dynamic_graphs())
def test_snapshots_appended_one_by_one_are_the_graph_built_of_all(
    tmp_path_factory: pytest.TempPathFactory, plain: PlainGraph
) -> None:
    _check_growth(plain, tmp_path_factory.mktemp("growing") / "grown")


def _named(place: Path, *snapshots: list[Any]) -> DynamicGraph:
    with GrowingGraph.create(place, features=Degrees(log=True), info={"of": "tests"}) as growing:
        for names in snapshots:
            growing.append(Edges([], []), names=names, info={"seen": growing.num_nodes + len(names)})
    return open_graph(place)


@pytest.mark.parametrize(
    "snapshots", [[[30, 40], [], [10], [20, 5]], [["eve", "ö"], [], ["adam"], ["", "b"]], [[1], [2, 3]]]
)
def test_a_node_is_found_by_its_name_in_whatever_order_nodes_came(snapshots: list[list[Any]], tmp_path: Path) -> None:
    grown = _named(tmp_path / "grown", *snapshots)
    listed = [name for names in snapshots for name in names]
    assert grown.info == {"of": "tests", "seen": len(listed)}
    for graph in (grown, grown.save(tmp_path / "saved"), open_graph(tmp_path / "saved")):
        assert graph.names is not None
        assert list(graph.names) == listed
        assert [graph.names.find(name) for name in listed] == list(range(len(listed)))
        with pytest.raises(UnknownNameError, match="'eva'"):
            graph.names.find("eva")
    early = GrowingGraph(tmp_path / "grown").open(1)
    assert list(early.names or ()) == snapshots[0]
    assert early.info["seen"] == len(snapshots[0]) == early.num_nodes


def test_names_in_any_order_are_searched_in_their_own() -> None:
    names = NodeNames.from_names([5, -1, 7], in_any_order=True)
    assert [names.find(name) for name in (5, -1, "7")] == [0, 1, 2]
    with pytest.raises(InputError, match="two nodes are named 'b'"):
        NodeNames.from_names(["b", "a", "b"], in_any_order=True)


def test_rows_are_of_one_type_and_of_the_widest(tmp_path: Path) -> None:
    with GrowingGraph.create(tmp_path / "grown", weighted=True) as growing:
        growing.append(Edges([], [], []), nodes=[], x=np.empty((0, 2)), y=[], num_nodes=2)
        growing.append(Edges([0], [1], [1.0]), x=np.ones((2, 2), np.float32), y=np.array([0.5, 1], np.float32))
        growing.append(Edges([0], [1], np.array([1.5], np.float32)), x=np.full((2, 2), 0.1), y=[0.1, math.nan])
        graph = growing.open()
    for snapshot in graph:
        assert snapshot.x is not None
        assert snapshot.y is not None
        assert snapshot.x.dtype == snapshot.y.dtype == np.float64
        assert snapshot.weight is not None
        assert snapshot.weight.dtype == np.float64
        assert not snapshot.x.flags.writeable
    assert GrowingGraph(tmp_path / "grown").open(1)[0].x is not None


def test_derived_features_use_appended_rows(tmp_path: Path) -> None:
    rows = Standardized(PerCell(np.empty((0, 1), np.float32)), (1.0,), (2.0,))
    with GrowingGraph.create(tmp_path / "grown", features=Concatenated((rows, RandomSignature(3)))) as growing:
        features = growing.open().features
        assert features is not None
        assert features.shape == (4,)
        growing.append(Edges([], []), x=[[3.0]], num_nodes=1)
        growing.append(Edges([], []), x=[[5.0], [1.0]], num_nodes=2)
        graph = growing.open()
    assert [shot.x[:, 0].tolist() for shot in graph if shot.x is not None] == [[1.0], [2.0, 0.0]]
    assert open_graph(tmp_path / "grown").save(tmp_path / "saved") == graph


def test_differences_take_older_snapshots_from_the_parts(tmp_path: Path) -> None:
    plain = AWKWARD["features and labels per cell"]
    with GrowingGraph.create(tmp_path / "grown", directed=False) as growing:
        for shot in plain.snapshots:
            _append(growing, plain, shot, 3)
        graph = growing.open()
    assert is_mapped(graph)
    assert Delta(window=1).wrap(graph) == plain.build()


def test_refused_snapshot_leaves_graph_unchanged(tmp_path: Path) -> None:
    growing = GrowingGraph.create(tmp_path / "grown")
    growing.append(Edges([0], [1]), names=["a", "b"], x=np.ones((2, 3)), time="Mon")
    refused: list[tuple[dict[str, Any], str]] = [
        ({"x": np.ones((2, 3)), "nodes": [0, 5]}, "snapshot 1: nodes contain 5"),
        ({}, "snapshot 1: features must be given for every snapshot"),
        ({"x": np.ones((2, 2))}, r"features have shape \(2,\) per node, those before it \(3,\)"),
        ({"x": np.ones((2, 3)), "y": [1, 2]}, "snapshot 1: labels must be given for every snapshot"),
        ({"x": np.ones((3, 3)), "names": [7]}, "names must be all integers or all strings"),
        ({"x": np.ones((3, 3)), "num_nodes": 3}, "0 names for 1 new nodes"),
        ({"x": np.ones((2, 3)), "num_nodes": 1}, "1 nodes after 2"),
        ({"x": np.ones((2, 3)), "info": {"of": {1, 2}}}, "cannot be kept as JSON"),
    ]
    for options, message in refused:
        with pytest.raises(InputError, match=message):
            growing.append(Edges([], []), **options)
    assert sorted(path.name for path in growing.path.iterdir()) == ["00000000", "graph.json"]
    growing.append(Edges([], []), nodes=[], x=np.ones((0, 3)))
    assert growing.open().times == ("Mon", 1)
    growing.close()
    with GrowingGraph.create(tmp_path / "nameless") as nameless:
        nameless.append(Edges([], []), num_nodes=2)
        with pytest.raises(InputError, match="the nodes before it have no names"):
            nameless.append(Edges([], []), names=["c"])


def test_one_process_appends_and_others_are_refused(tmp_path: Path) -> None:
    first = GrowingGraph.create(tmp_path / "grown")
    second = GrowingGraph(tmp_path / "grown")
    with pytest.raises(OptionError, match="is being written by another process"):
        second.append(Edges([], []))
    with pytest.raises(OptionError, match="is being written by another process"):
        AWKWARD["one node"].build().save(tmp_path / "grown", overwrite=True)
    first.append(Edges([], []), num_nodes=1)
    first.close()
    with pytest.raises(OptionError, match="already holds a graph"):
        GrowingGraph.create(tmp_path / "grown")
    second.append(Edges([], []), num_nodes=2)
    assert len(first) == len(second) == 2
    with pytest.raises(OptionError, match="has 2 snapshots, there are no 3"):
        second.open(3)
    second.close()


def test_static_features_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="features of a graph that grows come with its snapshots"):
        GrowingGraph.create(tmp_path / "grown", features=Static(np.ones((3, 1))))
    assert not any(tmp_path.iterdir())


def test_damage_is_found(tmp_path: Path) -> None:
    place = tmp_path / "grown"
    with GrowingGraph.create(place) as growing:
        for t in range(3):
            growing.append(Edges([0], [0]), num_nodes=t + 1)
    result = CliRunner().invoke(app, ["inspect", str(place), "--verify", "--json"])
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["snapshots"]["edges"]) == 3
    col = place / "00000001" / "col.npy"
    col.write_bytes(col.read_bytes()[:-1] + b"\1")
    with pytest.raises(FormatError, match=r"col.npy is damaged"):
        open_graph(place, verify=True)
    with pytest.raises(FormatError, match=r"col.npy is damaged"):
        open_graph(place)[1]
    assert CliRunner().invoke(app, ["inspect", str(place), "--verify"]).exit_code != 0
    shutil.rmtree(place / "00000001")
    with pytest.raises(FormatError, match="snapshot 1 is missing"):
        open_graph(place)


def test_a_writer_killed_at_any_moment_leaves_the_snapshots_it_had(tmp_path: Path) -> None:
    place, killed = tmp_path / "grown", 0
    whole = GraphBuilder(num_nodes=3)
    for t in range(3):
        whole.add(Edges([0], [t]), nodes=range(t + 1), time=t)
    expected = whole.finish()

    def work() -> None:
        with GrowingGraph(place) if place.exists() else GrowingGraph.create(place) as growing:
            while (t := len(growing)) < 3:
                growing.append(Edges([0], [t]), num_nodes=t + 1)

    lengths = set()
    while killed_before_step(killed, work):
        killed += 3 if killed > 4 else 1
        opened = open_graph(place) if place.exists() else None
        lengths.add(None if opened is None else len(opened))
        assert opened is None or list(opened) == list(expected[: len(opened)])
        if killed % 2:  # every other time what was left is gone on with
            work()
        assert not place.exists() or sorted(path.name for path in place.iterdir() if path.name[0] != ".")
        shutil.rmtree(place, ignore_errors=True)
    assert lengths == {None, 0, 1, 2, 3}
    assert open_graph(place) == expected
    assert sorted(path.name for path in place.iterdir()) == [*(f"{t:08}" for t in range(3)), "graph.json"]


def test_the_lock_of_a_killed_writer_is_gone_when_the_next_one_appends(tmp_path: Path) -> None:
    with GrowingGraph.create(tmp_path / "graph", directed=True) as graph:
        graph.append(Edges(np.array([0]), np.array([1])), num_nodes=2)
    left = tmp_path / "graph" / ".00000000.lock"  # it was killed after the snapshot was in its place
    left.touch()
    with GrowingGraph(tmp_path / "graph") as graph:
        graph.acquire()
        assert not left.exists()
