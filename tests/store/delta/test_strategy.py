from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.engine.inputs.graph_source import fingerprint
from strobe.errors import OptionError
from strobe.graph import Concatenated, Degrees, DynamicGraph, PerCell, Standardized, from_edges, open_graph
from strobe.graph.features import find_stored as at_the_bottom
from strobe.graph.stats import describe
from strobe.graph.synthetic import Changing
from strobe.store import Delta
from strobe.store.delta.strategy import NUM_REBUILT, DeltaStorage, MappedSpill, SnapshotWindow
from tests.support.graphs import AWKWARD, PlainGraph, assert_same, dynamic_graphs, full_graph
from tests.support.stored_sequences import slow_at_first

stores = st.builds(Delta, segments=st.integers(1, 3), window=st.integers(1, 6))


def changing() -> DynamicGraph:
    return Changing(nodes=60, edges=200, snapshots=9, features=10, seed=3).write()


def window_of(graph: DynamicGraph) -> SnapshotWindow:
    assert isinstance(graph.storage, DeltaStorage)
    return graph.storage.window


@pytest.mark.parametrize("window", [1, 2, 8])
@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_graphs_are_the_same(name: str, window: int) -> None:
    graph = AWKWARD[name].build()
    kept = Delta(window=window).wrap(graph)
    assert_same(kept, AWKWARD[name])
    assert kept == graph
    assert fingerprint(kept) == fingerprint(graph)


@slow_at_first
@given(dynamic_graphs(max_snapshots=6), stores, st.data())
def test_any_graph_is_the_same_in_any_order_of_reading(plain: PlainGraph, store: Delta, data: st.DataObject) -> None:
    kept = store.wrap(plain.build())
    assert_same(kept, plain)
    order = data.draw(st.permutations(range(len(kept))))
    assert all(kept[t] == plain.build()[t] for t in order)


@slow_at_first
@given(dynamic_graphs(max_snapshots=6), stores, st.slices(6), st.sets(st.integers(0, 5)))
def test_views_are_kept_and_kept_graphs_have_views(
    plain: PlainGraph, store: Delta, some: slice, chosen: set[int]
) -> None:
    forward = slice(some.start, some.stop, abs(some.step or 1))
    nodes = [v for v in chosen if v < plain.num_nodes]
    shown = plain.slice(forward).subset(nodes)
    assert_same(store.wrap(plain.build())[forward].subset(nodes), shown)
    assert_same(store.wrap(plain.build()[forward].subset(nodes)), shown)


@slow_at_first
@given(dynamic_graphs(max_snapshots=5), stores)
def test_all_that_is_in_memory_is_counted(plain: PlainGraph, store: Delta) -> None:
    kept = store.wrap(plain.build())
    window = window_of(kept)
    assert len(window.times) <= store.window
    assert kept.storage.nbytes >= window.nbytes == sum(array.nbytes for array in window.arrays())
    assert all(array.flags.owndata for array in window.arrays())


def test_cache_holds_the_last_rebuilt_snapshots() -> None:
    graph = changing()
    window = window_of(Delta(window=4).wrap(graph))
    for t in range(len(graph)):
        window.rows(t)
        window.x(t)
    assert len(window._recent) == NUM_REBUILT


def test_memory_does_not_grow_with_snapshots_that_are_older(tmp_path: Path) -> None:
    graph = changing()
    short = Delta(window=3, folder=str(tmp_path)).wrap(graph)
    whole = Delta(window=9).wrap(graph)
    assert window_of(short).times == [6, 7, 8]
    assert window_of(short).nbytes == window_of(Delta(window=3).wrap(graph[6:])).nbytes
    assert window_of(short).nbytes < window_of(whole).nbytes
    assert short == whole == graph


def test_older_snapshots_are_in_a_folder_until_the_graph_is_gone(tmp_path: Path) -> None:
    kept = Delta(window=2, folder=str(tmp_path)).wrap(changing())
    files = [path.name for path in tmp_path.glob("*/*")]
    assert sorted(files) == sorted(f"{t}.{name}" for t in range(7) for name in ("nodes", "row_ptr", "col", "x"))
    other = Delta(window=2, folder=str(tmp_path)).wrap(changing())
    assert len(list(tmp_path.iterdir())) == 2, "each has its own"
    assert kept == other
    del kept, other
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    assert len(Delta(window=9, folder=str(tmp_path)).wrap(changing())) == 9
    assert list(tmp_path.iterdir()) == [], "nothing is older"


def test_a_graph_on_disk_is_read_where_it_is(tmp_path: Path) -> None:
    graph = changing()
    graph.save(tmp_path / "graph")
    kept = Delta(window=2).wrap(open_graph(tmp_path / "graph"))
    assert isinstance(window_of(kept)._spill, MappedSpill)
    assert window_of(kept).times == [7, 8]
    assert kept == graph
    copied = Delta(window=2, folder=str(tmp_path)).wrap(open_graph(tmp_path / "graph")[1:].subset(range(40)))
    assert list(tmp_path.glob("strobe-older-*"))
    assert copied == graph[1:].subset(range(40))


def test_a_kept_graph_is_saved_described_and_kept_again(tmp_path: Path) -> None:
    graph = full_graph()
    kept = Delta(window=1).wrap(graph)
    assert kept.save(tmp_path / "graph") == graph
    assert kept.names == graph.names
    assert (kept.info, kept.times) == (graph.info, graph.times)
    assert describe(kept) == describe(graph)
    assert repr(kept) == repr(graph)
    assert Delta(window=2).wrap(kept) == graph


def test_features_on_top_of_others_rest_on_the_window() -> None:
    graph = changing()
    assert graph.features is not None
    scaled = graph.with_features(Standardized.fit(Concatenated((Degrees(log=True), graph.features)), graph))
    kept = Delta(window=3).wrap(scaled)
    bottom = at_the_bottom(kept.features)
    assert isinstance(bottom, PerCell)
    assert (len(bottom.values), bottom.num_rows) == (0, graph.num_cells)
    assert kept == scaled
    assert kept.with_features(kept.features) == scaled
    assert kept.with_features(Degrees()) == graph.with_features(Degrees())


def test_what_is_rebuilt_cannot_be_written_to() -> None:
    kept = Delta(window=2).wrap(full_graph())
    for snapshot in kept:
        for array in (snapshot.nodes, snapshot.row_ptr, snapshot.col, snapshot.weight, snapshot.x):
            assert array is not None
            assert not array.flags.writeable


def test_invalid_options_raise(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="segments"):
        Delta(segments=0)
    with pytest.raises(OptionError, match="window"):
        Delta(window=0)
    with pytest.raises(OptionError, match="no-such-folder"):
        Delta(window=1, folder=str(tmp_path / "no-such-folder")).wrap(changing())


def test_reading_from_several_threads_gives_the_same() -> None:
    graph = changing()
    kept = Delta(window=4).wrap(graph)
    order = np.random.default_rng(0).integers(0, 9, 200).tolist()
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda t: kept[t] == graph[t], order))


def test_snapshots_with_the_edges_of_the_one_before_cost_no_edges_and_are_decoded_once() -> None:
    rng = np.random.default_rng(0)
    edges, x = rng.integers(0, 30, (2, 200)), rng.standard_normal((8, 30, 2)).astype(np.float32)
    weights = rng.uniform(1, 2, 200)
    one, several = (
        from_edges([edges] * count, weights=[weights] * count, num_nodes=30, x=list(x[:count]), directed=False)
        for count in (1, 8)
    )
    kept = Delta(window=8).wrap(several)
    assert window_of(kept).arcs_bytes == window_of(Delta(window=8).wrap(one)).arcs_bytes
    assert kept == several
    assert kept.structures.tolist() == [0] * 8
    assert kept[3].col is kept[4].col
    assert Delta(window=3).wrap(several) == several


def test_kept_views_number_their_structures_from_0() -> None:
    edges = [np.array([[0], [1]]), np.array([[1], [0]])]
    graph = from_edges([edges[which] for which in (0, 1, 1, 0)], num_nodes=2)
    kept = Delta(window=2).wrap(graph[1:])
    assert kept.structures.tolist() == [0, 0, 1]
    assert kept == graph[1:]
