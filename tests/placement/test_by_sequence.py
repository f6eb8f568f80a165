from __future__ import annotations

from strobe.placement import BySequence
from tests.support.placement_cases import chain


def test_nodes_go_to_ranks_in_order_as_many_each() -> None:
    assert BySequence().place(chain([6, 2]), [], 3).node_owner.tolist() == [0, 0, 1, 1, 2, 2]
