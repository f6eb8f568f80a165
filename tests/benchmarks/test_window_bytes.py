from __future__ import annotations

import pytest

from benchmarks.window_bytes import window_bytes
from strobe.graph.synthetic import Changing
from strobe.store import Delta
from strobe.store.delta.strategy import DeltaStorage
from tests.support.graphs import AWKWARD


def test_every_window_is_counted_as_it_is_kept() -> None:
    graph = Changing(nodes=50, edges=100, snapshots=7, features=12, seed=1).write()
    counted = list(window_bytes(graph, 3))
    assert [each.t for each in counted] == [2, 3, 4, 5, 6]
    for each in counted:
        view = graph[each.t - 2 : each.t + 1]
        storage = Delta(window=3).wrap(view).storage
        assert isinstance(storage, DeltaStorage)
        assert each.delta == storage.window.nbytes
        assert each.full == sum(s.row_ptr.nbytes + s.col.nbytes + s.x.nbytes for s in view if s.x is not None)


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_graphs_are_counted(name: str) -> None:
    graph = AWKWARD[name].build()
    assert len(list(window_bytes(graph, 8))) == min(1, len(graph))
