from __future__ import annotations

from collections import defaultdict
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from strobe.comm import Alone, Comm
from strobe.comm.rows import tied
from strobe.errors import OptionError
from strobe.exchange import Relay
from strobe.exchange import legs as legs_module
from strobe.exchange.legs import NOBODY, find_legs
from strobe.exchange.relay import Packing, Relaying, Task
from strobe.models.time import Recurrent
from strobe.ops import native
from strobe.ops.sequences import Sequences
from tests.exchange.cases import KINDS, Stage, Table, alone, detached, tables, windows
from tests.placed import among_threads
from tests.ranks import as_threads

CPU = torch.device("cpu")
quick = settings(deadline=None, max_examples=60)
sparing = among_threads(25)


def relaying(table: Table, comm: Comm, rank: int, groups: int, home: Any = None) -> tuple[Relaying, Any]:
    """How a rank relays a window, and where states are after it."""
    home = np.full(table.num_nodes, NOBODY, np.int16) if home is None else home
    legs = find_legs(rank, table.nodes, table.owners, home, groups, table.num_ranks)
    last = np.array(table.homes(), np.int16)
    return Relaying(legs, comm, CPU), np.where(last == NOBODY, home, last)


def tasks_of(table: Table, groups: int) -> list[Relaying]:
    with patch.object(legs_module, "MIN_CELLS", 1):  # groups may be of one cell
        return [relaying(table, Alone(), rank, groups)[0] for rank in range(table.num_ranks)]


# Groups and waves.


@quick
@given(tables(nobody=True), st.integers(1, 4))
def test_every_leg_and_every_cell_is_in_one_task(table: Table, groups: int) -> None:
    for rank, timing in enumerate(tasks_of(table, groups)):
        legs, cells = table.legs(rank), table.cells(rank)
        assert sorted(leg for task in timing.tasks for leg in task.legs.tolist()) == list(range(len(legs)))
        assert sorted(cell for task in timing.tasks for cell in task.cells.tolist()) == list(range(len(cells)))
        for task in timing.tasks:
            own = [legs[leg] for leg in task.legs.tolist()]
            sequences = task.sequences
            assert (sequences.num_slots, sequences.num_snapshots) == (len(own), len(table.rows))
            for t, (start, stop) in enumerate(pairwise(sequences.cell_ptr)):
                slots = sequences.slots.tolist()[start:stop]
                assert slots == sorted(slots), "in a snapshot slots ascend"
                found = [cells[cell] for cell in task.cells.tolist()[start:stop]]
                assert found == [(t, own[slot].node) for slot in slots]
                assert all(t in own[slot].times for slot in slots)


@quick
@given(tables(nobody=True), st.integers(1, 4))
def test_tasks_are_one_group_and_wave_in_order_of_their_slots(table: Table, groups: int) -> None:
    for timing in tasks_of(table, groups):
        legs = timing.legs
        kinds = []
        for task in timing.tasks:
            ((group, wave),) = {(int(legs.group[leg]), int(legs.wave[leg])) for leg in task.legs.tolist()}
            assert task.slot == legs.turn[group] + wave
            kinds.append((group, wave))
        assert len(set(kinds)) == len(kinds)
        slots = [task.slot for task in timing.tasks]
        assert slots == sorted(slots)


Message = tuple[int, int, int]  # from, to, tag


def messages(table: Table, groups: int) -> tuple[dict[Message, Any], dict[Message, Any]]:
    """What is told and what is heard: the slot of the task, and the nodes in the order their states stand."""
    told: dict[Message, Any] = {}
    heard: dict[Message, Any] = {}

    def nodes(timing: Relaying, task: Task, places: Tensor) -> list[int]:
        found: list[int] = timing.legs.node[task.legs[places].numpy()].tolist()
        return found

    for rank, timing in enumerate(tasks_of(table, groups)):
        for task in timing.tasks:
            assert set(task.heard_tags) == set(task.hears)
            for to, places in task.tells.items():
                assert (rank, to, task.tag) not in told, "a message has a tag of its own"
                told[rank, to, task.tag] = task.slot, nodes(timing, task, places)
            for source, places in task.hears.items():
                assert (source, rank, task.heard_tags[source]) not in heard
                heard[source, rank, task.heard_tags[source]] = task.slot, nodes(timing, task, places)
    return told, heard


@quick
@given(tables(nobody=True), st.integers(1, 4))
def test_what_one_rank_tells_another_hears_in_the_same_order_in_a_later_slot(table: Table, groups: int) -> None:
    told, heard = messages(table, groups)
    assert told.keys() == heard.keys()
    for message, (slot, nodes) in told.items():
        assert message[0] != message[1]
        assert nodes
        assert heard[message][1] == nodes
        assert heard[message][0] > slot
    assert sum(len(nodes) for _, nodes in told.values()) == table.cuts_crossed()


@quick
@given(tables(nobody=True), st.integers(1, 4))
def test_every_cut_is_crossed_by_the_state_of_its_node(table: Table, groups: int) -> None:
    crossed: dict[tuple[int, int], list[int]] = defaultdict(list)
    for leg in table.legs():
        if leg.target != NOBODY:
            crossed[leg.rank, leg.target].append(leg.node)
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for (source, to, _), (_, nodes) in messages(table, groups)[0].items():
        found[source, to] += nodes
    assert {pair: sorted(nodes) for pair, nodes in found.items()} == crossed


def test_in_time_blocks_a_rank_has_one_task_per_group() -> None:
    table = Table(3, 12, [[rank] * 12 for rank in (0, 1, 2) for _ in range(2)])
    for rank, timing in enumerate(tasks_of(table, 4)):
        assert [(task.slot, len(task.legs), len(task.cells)) for task in timing.tasks] == [
            (group + rank, 3, 6) for group in range(4)
        ]


def test_where_sequences_go_round_in_circles_a_later_group_goes_before_a_later_wave() -> None:
    table = Table(2, 4, [[0] * 4, [1] * 4, [0] * 4])
    first, second = tasks_of(table, 2)
    assert [(task.slot, task.legs.tolist()) for task in first.tasks] == [
        (0, [0, 2]),  # the first legs of nodes 0 and 1, then those of 2 and 3, then the second ones
        (1, [4, 6]),
        (2, [1, 3]),
        (3, [5, 7]),
    ]
    assert [(task.slot, task.legs.tolist()) for task in second.tasks] == [(1, [0, 1]), (2, [2, 3])]


@pytest.mark.parametrize("groups", [0, -1])
def test_fewer_than_one_group_is_refused(groups: int) -> None:
    with pytest.raises(OptionError, match=f"at least 1 group, not {groups}"):
        Relay(groups=groups)


def test_groups_are_a_whole_number() -> None:
    with pytest.raises(OptionError, match="groups of relay must be a whole number, not 'many'"):
        Relay(groups="many")  # type: ignore[arg-type]
    assert Relay(groups=1).exact


# Exactness, and what it costs.


@dataclass(frozen=True)
class Relayed:
    """What a rank found: outputs of its cells, gradients, rows and bytes sent by phase and kind, what ran when."""

    outs: list[tuple[list[int], Tensor]]
    gradients: list[Tensor]
    sent: dict[tuple[str, str], int]
    num_bytes: dict[tuple[str, str], int]
    slots: list[tuple[str, int, int]]
    states: list[Any]


def relayed(stage: Stage, table: Table, cuts: list[int], groups: int, *, learns: bool = True) -> list[Relayed]:
    """A stack of time stages over all windows on every rank, as a model would run it."""

    def work(comm: Comm) -> Relayed:
        own = deepcopy(stage)
        states: list[Any] = [None] * len(own.encoders)
        home, loss, outs = None, own.x[:0].sum(), []
        with comm.ledger.phase("forward"):
            for start, stop in pairwise(cuts):
                window = table.window(start, stop)
                timing, home = relaying(window, comm, comm.rank, groups, home)
                rows = [table.cells().index((start + t, v)) for t, v in window.cells(comm.rank)]
                out, tokens = own.x[rows], []
                for k, encoder in enumerate(own.encoders):
                    out, states[k], more = timing.run(encoder, (out, own.beside[rows]), states[k])
                    tokens += more
                states = states if learns else [detached(state) for state in states]
                loss = loss + tied((out * own.aim[rows]).sum(), tokens)
                outs.append((rows, out.detach()))
        with comm.ledger.phase("backward"):
            loss.backward()
        slots = [(phase, stage, slot) for phase, stage, slot, _, _ in comm.ledger.slots]
        sent = dict(comm.ledger.rows_sent), dict(comm.ledger.sent)
        return Relayed(outs, own.gradients(), *sent, slots, states)

    with patch.object(legs_module, "MIN_CELLS", 1):
        return as_threads(work, table.num_ranks)


def assert_same(found: list[Relayed], expected: tuple[Tensor, list[Tensor]]) -> None:
    whole = torch.full_like(expected[0], torch.nan)
    for each in found:
        for rows, out in each.outs:
            whole[rows] = out
    torch.testing.assert_close(whole, expected[0], rtol=1e-10, atol=1e-12)
    for gradients, wanted in zip(zip(*(each.gradients for each in found), strict=True), expected[1], strict=True):
        torch.testing.assert_close(torch.stack(gradients).sum(0), wanted, rtol=1e-10, atol=1e-12)


def total(found: list[Relayed], phase: str, kind: str) -> int:
    return sum(each.sent.get((phase, kind), 0) for each in found)


def num_bytes(found: list[Relayed], phase: str, kind: str) -> int:
    return sum(each.num_bytes.get((phase, kind), 0) for each in found)


def cut_edges(table: Table, cuts: list[int]) -> tuple[int, int]:
    """Temporal edges cut within windows, and between them, cell by cell."""
    window_of = {t: k for k, (start, stop) in enumerate(pairwise(cuts)) for t in range(start, stop)}
    within = between = 0
    for v in range(table.num_nodes):
        for (t, a), (later, b) in pairwise(table.sequence(v)):
            if a != b:
                within += window_of[t] == window_of[later]
                between += window_of[t] != window_of[later]
    return within, between


@sparing
@given(windows(max_nodes=4, max_snapshots=5, min_ranks=2, nobody=True), st.integers(1, 3))
def test_a_stage_cut_anywhere_is_exact_and_costs_one_row_per_cut(drawn: tuple[Table, list[int]], groups: int) -> None:
    table, cuts = drawn
    stage = Stage.over(table)
    found = relayed(stage, table, cuts, groups)
    assert_same(found, alone(stage, table, cuts))
    within, between = cut_edges(table, cuts)
    for phase in ("forward", "backward"):
        assert total(found, phase, "relay") == within * len(stage.encoders)
        assert total(found, phase, "carry") == between * len(stage.encoders)
    assert {kind for each in found for _, kind in each.sent} <= {"relay", "carry"}


@sparing
@given(windows(max_nodes=4, max_snapshots=5, min_ranks=2), st.integers(1, 3))
def test_states_without_history_come_without_gradients(drawn: tuple[Table, list[int]], groups: int) -> None:
    table, cuts = drawn
    stage = Stage.over(table, begins=False)
    found = relayed(stage, table, cuts, groups, learns=False)
    assert_same(found, alone(stage, table, cuts, learns=False))
    within, between = cut_edges(table, cuts)
    assert total(found, "forward", "carry") == between * len(stage.encoders)
    assert total(found, "backward", "carry") == 0
    assert total(found, "backward", "relay") == within * len(stage.encoders)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("begins", [True, False], ids=["begins learnt", "begins fixed"])
def test_a_rank_that_had_nothing_in_the_window_before_sends_gradients_back_there(kind: str, begins: bool) -> None:
    table = Table(2, 2, [[0, 0], [1, 1]])
    stage = Stage.over(table, kind, begins=begins)
    assert_same(relayed(stage, table, [0, 1, 2], 1), alone(stage, table, [0, 1, 2]))


def test_a_node_that_skips_windows_goes_on_where_it_stopped_on_whatever_rank_it_comes_back() -> None:
    table = Table(3, 3, [[0, 1, 0], [1, None, 0], [None, None, 2], [None, 1, None], [2, 0, None], [2, 0, 2]])
    cuts = [0, 1, 2, 3, 4, 6]
    stage = Stage.over(table)
    found = relayed(stage, table, cuts, 1)
    assert_same(found, alone(stage, table, cuts))
    assert (total(found, "forward", "relay"), total(found, "forward", "carry")) == (0, 2 * 4)
    assert [len(each.states[0]["rows"]) for each in found] == [1, 0, 2], "a state is held by one rank"


@pytest.mark.parametrize("kind", ["gru", "lstm of two layers", "stack"])
@sparing
@given(windows(max_nodes=5, max_snapshots=5, min_ranks=2, nobody=True), st.integers(1, 3), st.booleans())
def test_kernels_that_hand_states_over_themselves_are_exact_too(
    kind: str, drawn: tuple[Table, list[int]], groups: int, learns: bool
) -> None:
    table, cuts = drawn
    stage = Stage.over(table, kind, begins=learns)
    found = relayed(stage, table, cuts, groups, learns=learns)
    assert_same(found, alone(stage, table, cuts, learns=learns))
    within, between = cut_edges(table, cuts)
    width = {"gru": 3, "lstm of two layers": 12, "stack": 4}[kind]
    for phase in ("forward", "backward"):
        # Bytes, not rows: the states of two layers travel one after the other, or side by side.
        assert num_bytes(found, phase, "relay") == within * len(stage.encoders) * width * 8
    assert num_bytes(found, "forward", "carry") == between * len(stage.encoders) * width * 8
    assert num_bytes(found, "backward", "carry") == (num_bytes(found, "forward", "carry") if learns else 0)


def test_each_task_is_noted_with_its_stage_and_slot() -> None:
    table = Table(2, 4, [[0] * 4, [1] * 4])
    found = relayed(Stage.over(table), table, [0, 2], 2)
    forward = [[(1, 0), (1, 1), (2, 0), (2, 1)], [(1, 1), (1, 2), (2, 1), (2, 2)]]
    assert [each.slots for each in found] == [[("forward", *slot) for slot in slots] for slots in forward]
    if native.library() is None:
        return
    in_kernels = relayed(Stage.over(table, "gru"), table, [0, 2], 2)
    for each, slots in zip(in_kernels, forward, strict=True):
        both = [*(("forward", *slot) for slot in slots), *(("backward", *slot) for slot in reversed(slots))]
        assert each.slots == both, "in the kernels, and back from the last to the first"


def test_a_stage_of_one_input_that_learns_nothing_is_relayed_too() -> None:
    """And a rank without cells gives an empty output and holds nothing."""
    table = Table(3, 2, [[0, 1], [1, 0]])
    torch.manual_seed(0)
    encoder = Recurrent(nn.LSTM(2, 3, num_layers=2).double())
    x = torch.randn(4, 2, dtype=torch.float64)
    expected, _ = encoder.encode(x, None, Sequences.of(table.nodes, 2))

    def work(comm: Comm) -> tuple[Tensor, dict[str, Tensor]]:
        timing, _ = relaying(table, comm, comm.rank, 1)
        rows = [t * 2 + v for t, v in table.cells(comm.rank)]
        with torch.no_grad():
            out, state, _ = timing.run(encoder, (x[rows],), None)
        assert not state["live"].requires_grad
        return out, state

    (first, held), (second, _), (third, nothing) = as_threads(work, 3)
    torch.testing.assert_close(torch.stack([first, second], 1).view(4, 3)[[0, 1, 3, 2]], expected.detach())
    assert held["rows"].shape == (1, 12), "two layers of h and c, side by side"
    assert third.shape == (0, 3)
    assert nothing["rows"].shape == (0, 12)


def test_a_nest_of_states_becomes_rows_and_a_nest_again() -> None:
    nest = {"a": torch.randn(3, 2), "b": [torch.randn(3, 1, 2), (torch.randn(3, 1),)]}
    packing = Packing(nest)
    rows = packing.pack(nest)
    assert rows.shape == (3, 5)
    torch.testing.assert_close(packing.unpack(rows), nest)
    single = packing.pack({"a": torch.ones(1, 2), "b": [torch.zeros(1, 1, 2), (torch.full((1, 1), 2.0),)]})
    assert single.tolist() == [[1, 1, 0, 0, 2]]
