from __future__ import annotations

from copy import deepcopy
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from strobe.comm import Comm
from strobe.comm.rows import tied
from strobe.exchange.shuffle import Shuffling
from strobe.models.time import Attention
from strobe.ops.sequences import Sequences
from tests.exchange.cases import Stage, Table, alone, detached, windows
from tests.placed import among_threads
from tests.ranks import as_threads

CPU = torch.device("cpu")
sparing = among_threads(30)


@st.composite
def held_windows(draw: st.DrawFn, /) -> tuple[Table, list[int], list[int]]:
    """A table, where it is cut, and the owner of every sequence, who need not have any of its cells."""
    table, cuts = draw(windows(max_nodes=4, max_snapshots=5, min_ranks=2, nobody=True))
    ranks = st.integers(0, table.num_ranks - 1)
    return table, cuts, draw(st.lists(ranks, min_size=table.num_nodes, max_size=table.num_nodes))


Found = tuple[list[tuple[list[int], Tensor]], list[Tensor], dict[tuple[str, str], int], dict[tuple[str, str], int]]


def shuffled(stage: Stage, table: Table, cuts: list[int], held: list[int], *, learns: bool = True) -> list[Found]:
    """A stack of time stages over all windows on every rank; outputs, gradients, rows and bytes sent."""

    def work(comm: Comm) -> Found:
        own = deepcopy(stage)
        states: list[Any] = [None] * len(own.encoders)
        loss, outs = own.x[:0].sum(), []
        with comm.ledger.phase("forward"):
            for start, stop in pairwise(cuts):
                window = table.window(start, stop)
                timing = Shuffling(comm, window.nodes, window.owners, np.array(held, np.int16), CPU)
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
        return outs, own.gradients(), dict(comm.ledger.rows_sent), dict(comm.ledger.sent)

    return as_threads(work, table.num_ranks)


@sparing
@given(held_windows(), st.booleans())
def test_whole_sequences_anywhere_are_exact_and_cost_two_rows_per_cell_away_from_home(
    drawn: tuple[Table, list[int], list[int]], learns: bool
) -> None:
    table, cuts, held = drawn
    stage = Stage.over(table)
    expected, gradients = alone(stage, table, cuts, learns=learns)
    found = shuffled(stage, table, cuts, held, learns=learns)
    whole = torch.full_like(expected, torch.nan)
    for outs, *_ in found:
        for rows, out in outs:
            whole[rows] = out
    torch.testing.assert_close(whole, expected, rtol=1e-10, atol=1e-12)
    for parts, wanted in zip(zip(*(each[1] for each in found), strict=True), gradients, strict=True):
        torch.testing.assert_close(torch.stack(parts).sum(0), wanted, rtol=1e-10, atol=1e-12)
    away = sum(table.rows[t][v] != held[v] for t, v in table.cells())
    for phase in ("forward", "backward"):
        assert sum(each[2].get((phase, "shuffle"), 0) for each in found) == 2 * away * len(stage.encoders)
        # Two columns and one go there in the first stage, three and one in the second; three come back in both.
        assert sum(each[3].get((phase, "shuffle"), 0) for each in found) == 8 * away * (2 + 1 + 3 + 1 + 2 * 3)
    assert {kind for each in found for _, kind in each[2]} <= {"shuffle"}


def test_cells_with_the_owner_of_their_sequence_do_not_travel() -> None:
    table = Table(2, 3, [[0, 1, 0], [0, None, 0]])
    for *_, rows, sent in shuffled(Stage.over(table), table, [0, 2], [0, 1, 0]):
        assert rows == sent == {}


def test_encoders_whose_state_is_not_one_row_per_node_are_shuffled_from_window_to_window() -> None:
    table = Table(2, 3, [[0, 1, 0], [1, None, 0], [None, 0, 1], [0, 0, 1]])
    held = np.array([1, 0, 0], np.int16)
    torch.manual_seed(0)
    encoder = Attention(4, 2, span=3).double()
    x = torch.randn(len(table.cells()), 4, dtype=torch.float64)
    expected, _ = encoder.encode(x, None, Sequences.of(table.nodes, 3))

    def work(comm: Comm) -> list[tuple[list[int], Tensor]]:
        state, outs = None, []
        for start, stop in ((0, 2), (2, 4)):
            window = table.window(start, stop)
            rows = [table.cells().index((start + t, v)) for t, v in window.cells(comm.rank)]
            timing = Shuffling(comm, window.nodes, window.owners, held, CPU)
            with torch.no_grad():
                out, state, _ = timing.run(encoder, (x[rows],), state)
            outs.append((rows, out))
        return outs

    whole = torch.full_like(expected, torch.nan)
    for outs in as_threads(work, 2):
        for rows, out in outs:
            whole[rows] = out
    torch.testing.assert_close(whole, expected.detach(), rtol=1e-10, atol=1e-12)
