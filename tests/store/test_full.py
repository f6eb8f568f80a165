from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from strobe.graph import open_graph
from strobe.graph.disk.directory import save
from strobe.graph.storage import ArrayStorage
from strobe.registry import make_strategy
from strobe.store import Full
from tests.support.graphs import AWKWARD, assert_same


@pytest.mark.parametrize("name", AWKWARD)
def test_a_graph_is_kept_as_it_is(name: str) -> None:
    kept = Full().wrap(AWKWARD[name].build())
    assert_same(kept, AWKWARD[name])


def test_nothing_is_copied() -> None:
    graph = AWKWARD["features and labels per cell"].build()
    kept = Full().wrap(graph)
    assert isinstance(graph.storage, ArrayStorage)
    assert isinstance(kept.storage, ArrayStorage)
    for name, array in graph.storage.arrays().items():
        assert np.shares_memory(kept.storage.arrays()[name], array) or not array.size, name


def test_a_graph_from_a_directory_stays_there(tmp_path: Path) -> None:
    save(AWKWARD["directed and weighted"].build(), tmp_path / "graph")
    kept = Full().wrap(open_graph(tmp_path / "graph"))
    assert isinstance(kept.storage, ArrayStorage)
    assert isinstance(kept.storage.col, np.memmap) or isinstance(kept.storage.col.base, np.memmap)


def test_it_is_exact_and_survives_json() -> None:
    assert Full().exact
    assert Full().to_json() == {"name": "full"}
    assert make_strategy("store", Full().to_json()) == Full()
