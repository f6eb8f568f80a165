from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from strobe.comm import Comm
from strobe.exchange.shuffle import ShuffleTimeStage
from strobe.models.time import Attention
from strobe.ops.time.sequences import Sequences
from tests.support.exchange_cases import Ran, Stage, Table, assert_same, run_on_one_rank, run_on_ranks, windows
from tests.support.partitions import among_threads
from tests.support.ranks import as_threads

CPU = torch.device("cpu")


@st.composite
def owned_windows(draw: st.DrawFn, /) -> tuple[Table, list[int], list[int]]:
    """A table, the boundaries of its windows, and the owner of every sequence, which may own none of its cells."""
    table, cuts = draw(windows(max_nodes=4, max_snapshots=5, min_ranks=2, unowned=True))
    ranks = st.integers(0, table.num_ranks - 1)
    return table, cuts, draw(st.lists(ranks, min_size=table.num_nodes, max_size=table.num_nodes))


def shuffled(
    stage: Stage, table: Table, cuts: list[int], sequence_owner: list[int], *, with_grad: bool = True
) -> list[Ran]:
    def start(window: Table, comm: Comm) -> ShuffleTimeStage:
        return ShuffleTimeStage(comm, window.nodes, window.owners, np.array(sequence_owner, np.int16), CPU)

    return run_on_ranks(stage, table, cuts, lambda: start, with_grad=with_grad)


@among_threads(30)
@given(owned_windows(), st.booleans())
def test_shuffle_is_exact_and_sends_two_rows_per_cell_away_from_its_owner(
    example: tuple[Table, list[int], list[int]], with_grad: bool
) -> None:
    table, cuts, sequence_owner = example
    stage = Stage.over(table)
    results = shuffled(stage, table, cuts, sequence_owner, with_grad=with_grad)
    assert_same(results, run_on_one_rank(stage, table, cuts, with_grad=with_grad))
    away = sum(table.rows[t][v] != sequence_owner[v] for t, v in table.cells())
    for phase in ("forward", "backward"):
        assert sum(each.sent.get((phase, "shuffle"), 0) for each in results) == 2 * away * len(stage.encoders)
        # Sent: 2 + 1 columns in the first stage, 3 + 1 in the second; returned: 3 in both.
        assert sum(each.num_bytes.get((phase, "shuffle"), 0) for each in results) == 8 * away * (2 + 1 + 3 + 1 + 2 * 3)
    assert {kind for each in results for _, kind in each.sent} <= {"shuffle"}


def test_cells_at_the_owner_of_their_sequence_are_not_sent() -> None:
    table = Table(2, 3, [[0, 1, 0], [0, None, 0]])
    for each in shuffled(Stage.over(table), table, [0, 2], [0, 1, 0]):
        assert each.sent == each.num_bytes == {}


def test_shuffled_attention_continues_across_windows() -> None:
    table = Table(2, 3, [[0, 1, 0], [1, None, 0], [None, 0, 1], [0, 0, 1]])
    sequence_owner = np.array([1, 0, 0], np.int16)
    torch.manual_seed(0)
    encoder = Attention(4, 2, span=3).double()
    x = torch.randn(len(table.cells()), 4, dtype=torch.float64)
    expected, _ = encoder.encode(x, None, Sequences.of(table.nodes, 3))

    def work(comm: Comm) -> list[tuple[list[int], Tensor]]:
        state, outs = None, []
        for start, stop in ((0, 2), (2, 4)):
            window = table.window(start, stop)
            rows = [table.cells().index((start + t, v)) for t, v in window.cells(comm.rank)]
            shuffle = ShuffleTimeStage(comm, window.nodes, window.owners, sequence_owner, CPU)
            with torch.no_grad():
                out, state, _ = shuffle.run(encoder, (x[rows],), state)
            outs.append((rows, out))
        return outs

    whole = torch.full_like(expected, torch.nan)
    for outs in as_threads(work, 2):
        for rows, out in outs:
            whole[rows] = out
    torch.testing.assert_close(whole, expected.detach(), rtol=1e-10, atol=1e-12)
