from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.comm import NO_RANK
from strobe.exchange import Exchange, Halo, Relay
from strobe.exchange.dry_run import FakeComm
from strobe.exchange.relay.legs import rank_levels
from strobe.exchange.relay.strategy import relay_flow
from strobe.exchange.traffic import Pipeline, Traffic, snapshot_flows, unique_below, window_flow
from tests.support.partitions import Owned, owned_graphs

RANKS = st.integers(0, 3)


@given(st.lists(st.integers(0, 20)), st.sampled_from([21, 1_000]))
def test_keys_are_distinct_and_ascending_whether_sorted_or_marked(keys: list[int], limit: int) -> None:
    assert unique_below(np.array(keys, np.int64), limit).tolist() == sorted(set(keys))


@given(st.lists(st.lists(st.tuples(st.integers(NO_RANK, 3), RANKS)), max_size=3))
def test_local_rows_and_rows_without_a_source_are_not_sent(window: list[list[tuple[int, int]]]) -> None:
    rows = [(np.array([a for a, _ in each], np.int16), np.array([b for _, b in each], np.int16)) for each in window]
    sent = [[(a, b) for a, b in each if a not in (b, NO_RANK)] for each in window]
    for found, expected in zip(snapshot_flows(rows, 4), sent, strict=True):
        assert found.rows_sent.tolist() == [sum(a == rank for a, _ in expected) for rank in range(4)]
        assert found.rows_received.tolist() == [sum(b == rank for _, b in expected) for rank in range(4)]
        assert found.messages_sent.tolist() == [len({b for a, b in expected if a == rank}) for rank in range(4)]
    whole, every = window_flow(rows, 4), [pair for each in sent for pair in each]
    assert whole.rows_sent.tolist() == [sum(a == rank for a, _ in every) for rank in range(4)]
    assert whole.backward.messages_sent.tolist() == [len({a for a, b in every if b == rank}) for rank in range(4)]


def walk(owned: Owned) -> tuple[dict[tuple[int, int], int], bool]:
    """Cells by (wave, rank), one sequence after the other; and whether sequences visit ranks in one order."""
    sends_to = np.zeros((owned.num_ranks, owned.num_ranks), bool)
    found: dict[tuple[int, int], int] = {}
    for node in range(owned.graph.num_nodes):
        at = [(t, np.flatnonzero(owned.graph[t].nodes == node)) for t in range(len(owned.graph))]
        wave, before = 0, None
        for owner in [rank for t, k in at if len(k) and (rank := owned.owner(t)[int(k[0])]) != NO_RANK]:
            if before not in (None, owner):
                sends_to[before, owner] = True
                wave += 1
            found[wave, owner] = found.get((wave, owner), 0) + 1
            before = owner
    levels = rank_levels(sends_to)
    if levels is None:
        return found, False
    total: dict[tuple[int, int], int] = {}
    for (_, rank), cells in found.items():
        key = int(levels[rank]), rank
        total[key] = total.get(key, 0) + cells
    return total, True


@given(owned_graphs(min_ranks=1, some=True))
@settings(deadline=None, max_examples=100)
def test_waves_are_those_of_a_walk_over_sequences(owned: Owned) -> None:
    home = np.full(owned.graph.num_nodes, NO_RANK, np.int16)
    window = owned.share(FakeComm(0, owned.num_ranks), Exchange(structure=Halo(), time=Relay()), home)
    _, cells, in_turn = relay_flow(window, 2)
    found = {(int(w), int(r)): int(cells[w, r]) for w, r in zip(*np.nonzero(cells), strict=True)}
    assert (found, in_turn) == walk(owned)
    assert cells.shape[1] == owned.num_ranks


@pytest.mark.parametrize("first", [None, 3])
def test_merged_traffic_adds_stages_and_takes_the_fewest_groups(first: int | None) -> None:
    total, more = Traffic(2), Traffic(2)
    cells = np.eye(2, dtype=np.int64)
    if first is not None:
        total.pipeline = Pipeline(cells=cells, groups=first, in_turn=True, num_stages=2)
    more.pipeline = Pipeline(cells=cells, groups=5, in_turn=True, num_stages=1)
    more.sent["relay"][1] = 8
    total.merge(more)
    total.merge(Traffic(2))
    assert total.sent["relay"].tolist() == [0, 8]
    assert total.pipeline is not None
    assert (total.pipeline.groups, total.pipeline.num_stages) == ((5, 1) if first is None else (3, 3))
