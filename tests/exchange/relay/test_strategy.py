from __future__ import annotations

from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from strobe.comm import NO_RANK, Comm, SingleRankComm
from strobe.errors import OptionError
from strobe.exchange import Relay
from strobe.exchange.relay import legs as legs_module
from strobe.exchange.relay.legs import find_legs
from strobe.exchange.relay.messages import RelayTask
from strobe.exchange.relay.strategy import RelayTimeStage, StatePacking
from strobe.models.time import Recurrent
from strobe.ops import native
from strobe.ops.time.sequences import Sequences
from tests.support.exchange_cases import (
    KINDS,
    Ran,
    Stage,
    StartStage,
    Table,
    assert_same,
    run_on_one_rank,
    run_on_ranks,
    tables,
    windows,
)
from tests.support.partitions import among_threads
from tests.support.ranks import as_threads

CPU = torch.device("cpu")
quick = settings(deadline=None, max_examples=60)


def relay_stage(table: Table, comm: Comm, rank: int, groups: int, home: Any = None) -> tuple[RelayTimeStage, Any]:
    """The relay of a window on one rank, and the homes of states after it."""
    home = np.full(table.num_nodes, NO_RANK, np.int16) if home is None else home
    legs = find_legs(rank, table.nodes, table.owners, home, groups, table.num_ranks, legs_module.MIN_CELLS)
    last = np.array(table.homes(), np.int16)
    return RelayTimeStage(legs, comm, CPU), np.where(last == NO_RANK, home, last)


def tasks_of(table: Table, groups: int) -> list[RelayTimeStage]:
    with patch.object(legs_module, "MIN_CELLS", 1):  # groups may be of one cell
        return [relay_stage(table, SingleRankComm(), rank, groups)[0] for rank in range(table.num_ranks)]


@quick
@given(tables(unowned=True), st.integers(1, 4))
def test_each_leg_and_cell_is_in_one_task_of_one_group_and_wave_in_order_of_slots(table: Table, groups: int) -> None:
    for rank, relay in enumerate(tasks_of(table, groups)):
        legs, cells = table.legs(rank), table.cells(rank)
        assert sorted(leg for task in relay.tasks for leg in task.legs.tolist()) == list(range(len(legs)))
        assert sorted(cell for task in relay.tasks for cell in task.cells.tolist()) == list(range(len(cells)))
        for task in relay.tasks:
            own = [legs[leg] for leg in task.legs.tolist()]
            sequences = task.sequences
            assert (sequences.num_slots, sequences.num_snapshots) == (len(own), len(table.rows))
            for t, (start, stop) in enumerate(pairwise(sequences.cell_ptr)):
                slots = sequences.slots.tolist()[start:stop]
                assert slots == sorted(slots)
                results = [cells[cell] for cell in task.cells.tolist()[start:stop]]
                assert results == [(t, own[slot].node) for slot in slots]
                assert all(t in own[slot].times for slot in slots)
        kinds = []
        for task in relay.tasks:
            ((group, wave),) = {(int(relay.legs.group[leg]), int(relay.legs.wave[leg])) for leg in task.legs.tolist()}
            assert task.slot == relay.legs.group_position[group] + wave
            kinds.append((group, wave))
        assert len(set(kinds)) == len(kinds)
        assert [task.slot for task in relay.tasks] == sorted(task.slot for task in relay.tasks)


Message = tuple[int, int, int]  # sender, receiver, key of the sending task


def messages(table: Table, groups: int) -> tuple[dict[Message, Any], dict[Message, Any]]:
    """Sent and received messages: slot and key of the task, those that it expects on the other rank, and the nodes."""
    sent: dict[Message, Any] = {}
    received: dict[Message, Any] = {}

    def nodes(relay: RelayTimeStage, task: RelayTask, places: Tensor) -> list[int]:
        results: list[int] = relay.legs.node[task.legs[places].numpy()].tolist()
        return results

    for rank, relay in enumerate(tasks_of(table, groups)):
        assert [task.key for task in relay.tasks] == sorted({task.key for task in relay.tasks})
        for task in relay.tasks:
            assert set(task.recv_keys) == set(task.recv_legs)
            assert set(task.send_keys) == set(task.send_legs)
            for to, places in task.send_legs.items():
                message = rank, to, task.key
                assert message not in sent
                sent[message] = task.slot, task.key, task.send_keys[to], nodes(relay, task, places)
            for source, places in task.recv_legs.items():
                message = source, rank, task.recv_keys[source]
                assert message not in received
                received[message] = task.slot, task.recv_keys[source], task.key, nodes(relay, task, places)
    return sent, received


@quick
@given(tables(unowned=True), st.integers(1, 4))
def test_sent_states_are_received_in_the_same_order_by_a_later_task(table: Table, groups: int) -> None:
    sent, received = messages(table, groups)
    assert sent.keys() == received.keys()
    for message, (slot, key, other_key, nodes) in sent.items():
        assert message[0] != message[1]
        assert nodes
        assert received[message][1:] == (key, other_key, nodes)
        assert received[message][0] > slot
        assert other_key > key, "messages depend on messages of smaller keys only"
    assert sum(len(nodes) for _, _, _, nodes in sent.values()) == table.cuts_crossed()


def test_time_blocks_have_one_task_per_group() -> None:
    table = Table(3, 12, [[rank] * 12 for rank in (0, 1, 2) for _ in range(2)])
    for rank, relay in enumerate(tasks_of(table, 4)):
        assert [(task.slot, len(task.legs), len(task.cells)) for task in relay.tasks] == [
            (group + rank, 3, 6) for group in range(4)
        ]


def test_cyclic_relay_runs_later_groups_before_later_waves() -> None:
    table = Table(2, 4, [[0] * 4, [1] * 4, [0] * 4])
    first, second = tasks_of(table, 2)
    assert [(task.slot, task.legs.tolist()) for task in first.tasks] == [
        (0, [0, 2]),  # the first legs of nodes 0 and 1, then those of 2 and 3, then the second ones
        (1, [4, 6]),
        (2, [1, 3]),
        (3, [5, 7]),
    ]
    assert [(task.slot, task.legs.tolist()) for task in second.tasks] == [(1, [0, 1]), (2, [2, 3])]


@pytest.mark.parametrize("groups", [0, -1, "many"])
def test_pipeline_groups_must_be_a_positive_integer(groups: Any) -> None:
    with pytest.raises(OptionError, match=f"pipeline_groups.*{groups}"):
        Relay(pipeline_groups=groups)


def relayed(stage: Stage, table: Table, cuts: list[int], groups: int, *, with_grad: bool = True) -> list[Ran]:
    def start_stage() -> StartStage:
        home = None

        def start(window: Table, comm: Comm) -> RelayTimeStage:
            nonlocal home
            relay, home = relay_stage(window, comm, comm.rank, groups, home)
            return relay

        return start

    with patch.object(legs_module, "MIN_CELLS", 1):
        return run_on_ranks(stage, table, cuts, start_stage, with_grad=with_grad)


def total(results: list[Ran], phase: str, kind: str) -> int:
    return sum(each.sent.get((phase, kind), 0) for each in results)


def num_bytes(results: list[Ran], phase: str, kind: str) -> int:
    return sum(each.num_bytes.get((phase, kind), 0) for each in results)


def cut_edges(table: Table, cuts: list[int]) -> tuple[int, int]:
    """Number of temporal edges cut within windows and between them."""
    window_of = {t: k for k, (start, stop) in enumerate(pairwise(cuts)) for t in range(start, stop)}
    within = between = 0
    for v in range(table.num_nodes):
        for (t, a), (later, b) in pairwise(table.sequence(v)):
            if a != b:
                within += window_of[t] == window_of[later]
                between += window_of[t] != window_of[later]
    return within, between


@among_threads(25)
@given(windows(max_nodes=4, max_snapshots=5, min_ranks=2, unowned=True), st.integers(1, 3), st.booleans())
def test_relay_is_exact_and_sends_one_row_per_cut(
    example: tuple[Table, list[int]], groups: int, with_grad: bool
) -> None:
    table, cuts = example
    stage = Stage.over(table, begins=with_grad)
    results = relayed(stage, table, cuts, groups, with_grad=with_grad)
    assert_same(results, run_on_one_rank(stage, table, cuts, with_grad=with_grad))
    within, between = cut_edges(table, cuts)
    for phase in ("forward", "backward"):
        assert total(results, phase, "relay") == within * len(stage.encoders)
    assert total(results, "forward", "carry") == between * len(stage.encoders)
    assert total(results, "backward", "carry") == with_grad * between * len(stage.encoders), "not of detached states"
    assert {kind for each in results for _, kind in each.sent} <= {"relay", "carry"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("begins", [True, False], ids=["learned initial state", "fixed initial state"])
def test_rank_without_cells_in_the_previous_window_sends_gradients_back(kind: str, begins: bool) -> None:
    table = Table(2, 2, [[0, 0], [1, 1]])
    stage = Stage.over(table, kind, begins=begins)
    assert_same(relayed(stage, table, [0, 1, 2], 1), run_on_one_rank(stage, table, [0, 1, 2]))


def test_node_that_skips_windows_continues_from_its_state_on_any_rank() -> None:
    table = Table(3, 3, [[0, 1, 0], [1, None, 0], [None, None, 2], [None, 1, None], [2, 0, None], [2, 0, 2]])
    cuts = [0, 1, 2, 3, 4, 6]
    stage = Stage.over(table)
    results = relayed(stage, table, cuts, 1)
    assert_same(results, run_on_one_rank(stage, table, cuts))
    assert (total(results, "forward", "relay"), total(results, "forward", "carry")) == (0, 2 * 4)
    assert [len(each.states[0]["rows"]) for each in results] == [1, 0, 2]


@pytest.mark.parametrize("kind", ["gru", "lstm of two layers", "stack"])
@among_threads(12)
@given(windows(max_nodes=5, max_snapshots=5, min_ranks=2, unowned=True), st.integers(1, 3), st.booleans())
def test_fused_kernels_relay_exactly(kind: str, example: tuple[Table, list[int]], groups: int, with_grad: bool) -> None:
    table, cuts = example
    stage = Stage.over(table, kind, begins=with_grad)
    results = relayed(stage, table, cuts, groups, with_grad=with_grad)
    assert_same(results, run_on_one_rank(stage, table, cuts, with_grad=with_grad))
    within, between = cut_edges(table, cuts)
    width = {"gru": 3, "lstm of two layers": 12, "stack": 4}[kind]
    for phase in ("forward", "backward"):
        # Bytes, not rows: the states of two layers are sent one after the other or concatenated.
        assert num_bytes(results, phase, "relay") == within * len(stage.encoders) * width * 8
    assert num_bytes(results, "forward", "carry") == between * len(stage.encoders) * width * 8
    assert num_bytes(results, "backward", "carry") == (num_bytes(results, "forward", "carry") if with_grad else 0)


def test_ledger_records_the_stage_and_slot_of_each_task() -> None:
    table = Table(2, 4, [[0] * 4, [1] * 4])
    results = relayed(Stage.over(table), table, [0, 2], 2)
    forward = [[(1, 0), (1, 1), (2, 0), (2, 1)], [(1, 1), (1, 2), (2, 1), (2, 2)]]
    assert [each.slots for each in results] == [[("forward", *slot) for slot in slots] for slots in forward]
    if native.library() is None:
        return
    in_kernels = relayed(Stage.over(table, "gru"), table, [0, 2], 2)
    for each, slots in zip(in_kernels, forward, strict=True):
        both = [*(("forward", *slot) for slot in slots), *(("backward", *slot) for slot in reversed(slots))]
        assert each.slots == both


def test_a_stage_of_one_input_without_gradients_is_relayed_too() -> None:
    """And a rank without cells gives an empty output and holds nothing."""
    table = Table(3, 2, [[0, 1], [1, 0]])
    torch.manual_seed(0)
    encoder = Recurrent(nn.LSTM(2, 3, num_layers=2).double())
    x = torch.randn(4, 2, dtype=torch.float64)
    expected, _ = encoder.encode(x, None, Sequences.of(table.nodes, 2))

    def work(comm: Comm) -> tuple[Tensor, dict[str, Tensor]]:
        relay, _ = relay_stage(table, comm, comm.rank, 1)
        rows = [t * 2 + v for t, v in table.cells(comm.rank)]
        with torch.no_grad():
            out, state, _ = relay.run(encoder, (x[rows],), None)
        assert not state["live"].requires_grad
        return out, state

    (first, state), (second, _), (third, nothing) = as_threads(work, 3)
    torch.testing.assert_close(torch.stack([first, second], 1).view(4, 3)[[0, 1, 3, 2]], expected.detach())
    assert state["rows"].shape == (1, 12)
    assert third.shape == (0, 3)
    assert nothing["rows"].shape == (0, 12)


def test_state_packing_round_trip() -> None:
    nest = {"a": torch.randn(3, 2), "b": [torch.randn(3, 1, 2), (torch.randn(3, 1),)]}
    packing = StatePacking(nest)
    rows = packing.pack(nest)
    assert rows.shape == (3, 5)
    torch.testing.assert_close(packing.unpack(rows), nest)
    single = packing.pack({"a": torch.ones(1, 2), "b": [torch.zeros(1, 1, 2), (torch.full((1, 1), 2.0),)]})
    assert single.tolist() == [[1, 1, 0, 0, 2]]
