from __future__ import annotations

from strobe.batching import Full
from tests.support.placement_cases import chain

GRAPH = chain([3] * 8)


def test_full_is_one_batch() -> None:
    (batch,) = Full().batches(GRAPH, range(1, 7), hops=1)
    assert (batch.times, batch.target_times, batch.seed_nodes, batch.continues_state) == (
        range(1, 7),
        range(1, 7),
        None,
        True,
    )
