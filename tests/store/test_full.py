from __future__ import annotations

import pytest

from strobe.errors import OptionError
from strobe.registry import make_strategy
from strobe.store import Delta, Full, Store
from tests.support.graphs import AWKWARD


@pytest.mark.parametrize("name", AWKWARD)
def test_a_graph_is_not_copied(name: str) -> None:
    graph = AWKWARD[name].build()
    assert Full().wrap(graph) is graph


@pytest.mark.parametrize("store", [Full(), Delta(segments=8, window=4)])
def test_stores_are_exact_and_survive_json(store: Store) -> None:
    assert store.exact
    assert make_strategy("store", store.to_json()) == store


def test_rows_of_no_snapshot_cannot_be_dropped() -> None:
    with pytest.raises(OptionError, match="no snapshot"):
        Full().row_store().drop()
