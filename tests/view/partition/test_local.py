from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from strobe.comm import NO_RANK, Comm, SingleRankComm
from strobe.comm.rows import attach_tokens
from strobe.exchange import Exchange, Halo, NoExchange, NoTimeExchange, Relay, Shuffle
from strobe.exchange.none import LocalTimeStage
from strobe.exchange.relay.strategy import RelayTimeStage
from strobe.exchange.shuffle import ShuffleTimeStage
from strobe.models.time import Attention, Recurrent
from strobe.ops.sparse.normalize import Norm
from strobe.placement import Partition
from strobe.view import LocalPartition, Owners, View, WindowData
from strobe.view.partition.local import Reads
from tests.support.dense import window_matrix
from tests.support.model_cases import CHANGING, with_inputs
from tests.support.partitions import EXCHANGE, Owned, among_threads, one_of, owned_graphs
from tests.support.ranks import as_threads

NORMS: tuple[Norm, ...] = get_args(Norm)
GRAPH = with_inputs(CHANGING.build())  # 4, 3, 0, 6, 4 and 6 cells
RELAYED, ATTENDING = Recurrent(torch.nn.GRU(3, 2)), Attention(4)
quick = settings(deadline=None, max_examples=60)
sparing = among_threads(20)


def in_turn(num_ranks: int = 3) -> Partition:
    """Cells dealt to ranks one after the other."""
    return Partition.by_cell(num_ranks, np.arange(GRAPH.num_cells) % num_ranks, GRAPH).with_sequence_owner(GRAPH)


def share_of(placed: Partition, rank: int = 0, exchange: Exchange = EXCHANGE) -> LocalPartition:
    return Owned(CHANGING, GRAPH, placed).share(one_of(rank, placed.num_ranks), exchange)


# Owners.


def test_owners_are_computed_on_access(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    made = Partition.owners

    def noted(placed: Partition, graph: Any, t: int) -> Any:
        asked.append(t)
        return made(placed, graph, t)

    monkeypatch.setattr(Partition, "owners", noted)
    owners = Owners(GRAPH, in_turn(), range(1, 6))
    asked.clear()
    assert len(owners) == 5
    part = owners[1:4]
    assert isinstance(part, Owners)
    assert (len(part), part.times, asked) == (3, range(2, 5), [])
    assert part[1].tolist() == [1, 2, 0, 1, 2, 0]
    assert asked == [3]
    assert owners[-1].tolist() == in_turn().owners(GRAPH, 5).tolist()


def test_masked_cells_have_no_rank_in_slices_too() -> None:
    chosen = [np.array([True, False, True]), np.array([], bool), np.array([False, True] * 3)]
    owners = Owners(GRAPH, in_turn(), range(1, 4), chosen)
    assert [each.tolist() for each in owners] == [[1, -1, 0], [], [-1, 2, -1, 1, -1, 0]]
    assert [each.tolist() for each in owners[2:]] == [[-1, 2, -1, 1, -1, 0]]


# What a rank has.


@quick
@given(owned_graphs(min_ranks=1, some=True))
def test_rank_has_its_own_cells_and_the_sizes_of_all_snapshots(owned: Owned) -> None:
    for rank in range(owned.num_ranks):
        share = owned.share(one_of(rank, owned.num_ranks))
        assert [(t, k) for t, own in enumerate(share.own) for k in own.tolist()] == owned.own(rank)
        counts = [sum(who != NO_RANK for who in owned.owner(t)) for t in range(len(owned.graph))]
        assert share.snapshot_sizes.tolist() == counts
        cells = owned.cells(one_of(rank, owned.num_ranks))
        assert cells.num_cells == len(owned.own(rank))
        whole = WindowData(owned.graph, dtype=torch.float64).x
        assert torch.equal(cells.x, whole[owned.numbers(rank)])
        arcs = [owned.graph[t].in_degree[k] for t, k in owned.own(rank)]
        assert cells.num_arcs == sum(arcs)


def test_splits_snapshots_unless_each_is_on_one_rank() -> None:
    by_snapshot = Partition.by_snapshot(2, np.array([0, 1, 0, 1, 0, 1]), GRAPH.num_nodes).with_sequence_owner(GRAPH)
    assert not share_of(by_snapshot).splits_snapshots
    assert share_of(by_snapshot).has_whole_snapshots
    assert share_of(in_turn()).splits_snapshots
    assert not share_of(in_turn()).has_whole_snapshots
    assert not share_of(in_turn(1)).splits_snapshots
    some = Owned(CHANGING, GRAPH, by_snapshot, [np.zeros(n, bool) for n in np.diff(GRAPH.cell_ptr)])
    assert not some.share(one_of(0, 2)).has_whole_snapshots, "some cells may be missing"


def slow_neighbours(owned: Owned, rank: int, reads: Reads) -> list[tuple[int, int, int]]:
    """(owner, t, position) of all cells of others that a rank's read, each once."""
    found = set()
    for t in range(len(owned.graph)):
        at = {node: k for k, node in enumerate(owned.plain.present(t))}
        for destination, source, _ in owned.plain.arcs(t):
            reader, read = (destination, source) if reads == "in" else (source, destination)
            who, whose = owned.owner(t)[at[reader]], owned.owner(t)[at[read]]
            if who == rank and whose not in (rank, NO_RANK):
                found.add((whose, t, at[read]))
    return sorted(found)


@quick
@given(owned_graphs(some=True), st.sampled_from(get_args(Reads)))
def test_halo_covers_the_remote_cells_read_along_incoming_or_outgoing_arcs(owned: Owned, reads: Reads) -> None:
    for rank in range(owned.num_ranks):
        around = owned.share(one_of(rank, owned.num_ranks)).halo_cells(reads)
        wanted = slow_neighbours(owned, rank, reads)
        owners = [owner for owner, _, _ in wanted]
        assert around.route.receive == {owner: owners.count(owner) for owner in owners}
        for t, (positions, places) in enumerate(zip(around.positions, around.places, strict=True)):
            assert [wanted[place][1:] for place in places.tolist()] == [(t, k) for k in positions.tolist()]


def test_whole_snapshots_have_no_halo() -> None:
    placed = Partition.by_snapshot(2, np.array([0, 1, 0, 1, 0, 1]), GRAPH.num_nodes).with_sequence_owner(GRAPH)
    around = share_of(placed).halo_cells("in")
    assert around.route.is_empty
    assert [len(each) for each in (*around.positions, *around.places)] == [0] * 12


# How sequences go on.


@pytest.mark.parametrize(
    ("time", "encoder", "expected"),
    [
        (Relay(), RELAYED, RelayTimeStage),
        (Relay(), ATTENDING, ShuffleTimeStage),
        (Shuffle(), RELAYED, ShuffleTimeStage),
    ],
)
def test_time_stage_relays_row_states_and_shuffles_other_encoders(time: Any, encoder: Any, expected: type) -> None:
    share = share_of(in_turn(), exchange=Exchange(structure=Halo(), time=time))
    timing = share.time_stage(encoder)
    assert type(timing) is expected
    assert share.time_stage(encoder) is timing, "made once"


def test_whole_sequences_are_encoded_locally() -> None:
    by_node = Partition.by_node(2, np.array([0, 1, 1, 0, 1, 0]), len(GRAPH))
    for placed, exchange in (
        (in_turn(1), EXCHANGE),
        (by_node, EXCHANGE),
        (by_node, Exchange(structure=NoExchange(), time=NoTimeExchange())),
    ):
        share = share_of(placed, exchange=exchange)
        assert type(share.time_stage(RELAYED)) is type(share.time_stage(ATTENDING)) is LocalTimeStage
        assert share.handovers() == [None] * 6


def test_state_sequences_have_a_slot_for_every_node_the_rank_may_store() -> None:
    by_node = share_of(Partition.by_node(2, np.array([0, 1, 1, 0, 1, 0]), len(GRAPH)), rank=1)
    assert by_node.state_sequences.num_slots == 3
    assert by_node.state_sequences.slots.tolist() == [0, 1, 2, 1, 2, 0, 1, 2, 0, 1, 0, 1, 2]  # nodes 1, 2 and 4
    assert by_node.state_sequences is by_node.time_stage(RELAYED).sequences  # type: ignore[attr-defined]
    anywhere = share_of(in_turn(), rank=1)
    assert anywhere.state_sequences.num_slots == GRAPH.num_nodes
    nodes = [CHANGING.present(t)[k] for t, own in enumerate(anywhere.own) for k in own.tolist()]
    assert anywhere.state_sequences.slots.tolist() == nodes
    without = Partition.by_snapshot(2, np.ones(6, np.int64), GRAPH.num_nodes)  # owners of sequences are not known
    assert share_of(without, rank=1).state_sequences.num_slots == GRAPH.num_nodes


def drawn_homes(data: st.DataObject, owned: Owned) -> list[int]:
    """Where states are before the window: anywhere, or nowhere yet."""
    number = owned.graph.num_nodes
    return data.draw(st.lists(st.integers(NO_RANK, owned.num_ranks - 1), min_size=number, max_size=number))


def moved_on(owned: Owned, t: int, home: list[int]) -> None:
    """Where states are after a snapshot."""
    for node, who in zip(owned.plain.present(t), owned.owner(t), strict=True):
        home[node] = home[node] if who == NO_RANK else who


@quick
@given(owned_graphs(some=True, min_snapshots=1), st.data())
def test_handovers_move_states_to_the_owner_of_the_next_cell(owned: Owned, data: st.DataObject) -> None:
    assume(not owned.placed.whole_sequences)
    home, ranks = drawn_homes(data, owned), range(owned.num_ranks)
    found = [owned.share(one_of(rank, owned.num_ranks), home=np.array(home, np.int16)).handovers() for rank in ranks]
    for t in range(len(owned.graph)):
        cells = [
            (node, who) for node, who in zip(owned.plain.present(t), owned.owner(t), strict=True) if who != NO_RANK
        ]
        moves = sorted((home[node], who, node) for node, who in cells if home[node] not in (who, NO_RANK))
        for rank in ranks:
            handover = found[rank][t]
            leaving = [(to, node) for source, to, node in moves if source == rank]
            coming = [(source, node) for source, to, node in moves if to == rank]
            assert (handover is None) == (not leaving and not coming)
            if handover is not None:
                route = handover.route
                assert [(to, v) for to, nodes in sorted(route.send.items()) for v in nodes.tolist()] == leaving
                assert [source for source, rows in sorted(route.receive.items()) for _ in range(rows)] == [
                    source for source, _ in coming
                ]
                own = [node for node, who in cells if who == rank]
                assert [own[row] for row in handover.places.tolist()] == [node for _, node in coming]
        moved_on(owned, t, home)


# What a view makes of it.


@sparing
@given(owned_graphs(max_nodes=5, max_snapshots=3))
def test_partitioned_products_and_gradients_equal_the_whole(owned: Owned) -> None:
    number = owned.graph.num_cells
    generator = torch.Generator().manual_seed(0)
    z, towards = (torch.randn(number, 2, dtype=torch.float64, generator=generator) for _ in range(2))
    features = WindowData(owned.graph, dtype=torch.float64).x

    def work(comm: Comm) -> list[tuple[Tensor, Tensor, Tensor]]:
        at = owned.numbers(comm.rank)
        view = View(owned.cells(comm))
        found = []
        for norm in NORMS:
            mine = z[at].requires_grad_()
            out = view.aggregate(mine, norm)
            view.attach_exchanges((out * towards[at]).sum()).backward()
            assert mine.grad is not None
            sent = sum(comm.ledger.rows_sent.values())
            found.append((out.detach(), mine.grad, view.aggregate(view.x, norm)))
            assert sum(comm.ledger.rows_sent.values()) == sent, "features come from the graph"
        return found

    everyone = as_threads(work, owned.num_ranks)
    for k, norm in enumerate(NORMS):
        matrix = torch.from_numpy(window_matrix(norm, owned.plain))
        for rank, found in enumerate(everyone):
            at = owned.numbers(rank)
            out, gradient, inputs = found[k]
            torch.testing.assert_close(out, (matrix @ z)[at], rtol=1e-10, atol=1e-12)
            torch.testing.assert_close(gradient, (matrix.t() @ towards)[at], rtol=1e-10, atol=1e-12)
            torch.testing.assert_close(inputs, (matrix @ features)[at], rtol=1e-10, atol=1e-12)


@sparing
@given(owned_graphs(max_nodes=5, max_snapshots=3, some=True))
def test_pull_and_edge_index_cover_the_rows_that_own_cells_read(owned: Owned) -> None:
    features = WindowData(owned.graph, dtype=torch.float64).x

    def work(comm: Comm) -> tuple[Tensor, Tensor, Tensor]:
        view = View(owned.cells(comm))
        numbers = torch.tensor(owned.numbers(comm.rank), dtype=torch.float64)[:, None]
        assert torch.equal(view.pull(numbers)[: view.num_cells], numbers)
        return view.pull(numbers)[:, 0], view.pull(view.x), view.edge_index

    def cell(t: int, node: int) -> int:
        return owned.plain.cells().index((t, node))

    takes_part = {number for rank in range(owned.num_ranks) for number in owned.numbers(rank)}
    arcs = [(cell(t, u), cell(t, v)) for t in range(len(owned.graph)) for v, u, _ in owned.plain.arcs(t)]
    for rank, (numbers, inputs, edges) in enumerate(as_threads(work, owned.num_ranks)):
        at = owned.numbers(rank)
        pulled = [int(number) for number in numbers]
        assert torch.equal(inputs, features[pulled])
        read = [(pulled[a], at[b]) for a, b in edges.t().tolist()]
        assert sorted(read) == sorted((a, b) for a, b in arcs if b in at and a in takes_part)
        assert set(pulled[len(at) :]) == {a for a, _ in read} - set(at)


def test_single_rank_partition_equals_no_partition() -> None:
    share = Owned(CHANGING, GRAPH, in_turn(1)).share(SingleRankComm())
    view = View(WindowData(GRAPH, local_partition=share))
    assert torch.equal(view.pull(view.x.clone()), WindowData(GRAPH).x)
    loss = torch.ones((), requires_grad=True) * 2
    assert torch.equal(attach_tokens(loss, []), view.attach_exchanges(loss))
