from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.batching import Vertices
from strobe.comm import NO_RANK
from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.launch.processes import OutputConfig
from strobe.engine.model_costs import TRACED
from strobe.engine.partitioned_graph import PartitionedGraph
from strobe.engine.progress import Progress
from strobe.engine.trace import ViewCall, trace_view_calls
from strobe.engine.train import train_on_rank
from strobe.engine.windows import window_of_batch
from strobe.exchange import Exchange, Halo, NoTimeExchange, Overlapped, Relay, Shuffle, Stale, StaleTime, TimeStage
from strobe.exchange.base import PartitionedWindow, TimeExchange
from strobe.exchange.dry_run import FakeComm
from strobe.exchange.relay import legs
from strobe.graph import Degrees, DynamicGraph
from strobe.graph.synthetic import Social
from strobe.models import MODELS, make_model
from strobe.placement import BySnapshot, Metis, Placement, Replicated, TimeBlocks
from strobe.plan import Plan
from strobe.planner.comm.volume import PassVolume, comm_volume_of_all_ranks, comm_volume_of_rank
from strobe.planner.partition import PartitionedJob, repeat_calls
from strobe.presets import preset
from strobe.registry import AXES
from strobe.view import LocalPartition
from tests.support import planner_jobs
from tests.support.graphs import AWKWARD
from tests.support.partitions import Owned, owned_graphs
from tests.support.ranks import as_threads
from tests.support.runs import small_graph

KINDS = ("halo", "relay", "shuffle", "carry", "state")
NAMES: dict[str, dict[str, Any]] = {
    "tgcn": {"layers": 2},
    "evolvegcn-o": {"layers": 2},
    "dcrnn": {},
    "dysat": {"layers": 2, "time_layers": 2, "heads": 2},
    "mpnn-lstm": {"layers": 2},
    "roland": {"update": "moving-average"},
    "gc-lstm": {},
}
PLACEMENTS = [choice() for name, choice in AXES["placement"].items() if name != "replicated"]


@dataclass(frozen=True, kw_only=True)
class Wrapped(TimeExchange):
    """A user's own exchange, which says nothing about its messages."""

    name: ClassVar[str] = "wrapped"
    inner: TimeExchange

    def start(self, window: PartitionedWindow) -> TimeStage:
        return self.inner.start(window)


TIMES = [Relay(pipeline_groups=3), Shuffle(), NoTimeExchange()]
GRAPHS = (
    "no snapshots",
    "no nodes at all",
    "one node with itself",
    "empty snapshot",
    "only empty snapshots",
    "isolated nodes",
    "a node that leaves and returns",
    "a node that is never present",
    "parallel edges",
)


def of_rank(found: dict[str, Any], rank: int) -> dict[str, int]:
    return {kind: int(each[rank]) for kind, each in found.items() if each[rank]}


def by_kind(ledger: dict[tuple[str, str], int]) -> dict[str, int]:
    """Counts of forward and backward passes together."""
    total = Counter[str]()
    for (_, kind), number in ledger.items():
        total[kind] += number
    return dict(+total)


def assert_same(
    found: PassVolume, local: LocalPartition | None, rank: int, calls: Sequence[ViewCall], *, carries: bool
) -> None:
    """Check the counts of one rank against its routes and the dry run of its time stages."""
    traffic = found.traffic
    if local is None:
        assert not of_rank(traffic.sent, rank) | of_rank(traffic.received, rank) | of_rank(traffic.messages, rank)
        return
    expected = comm_volume_of_rank(local, calls, continues_state=carries)
    assert of_rank(traffic.sent, rank) == by_kind(expected.sent)
    assert of_rank(traffic.received, rank) == by_kind(expected.received)
    assert of_rank(traffic.messages, rank) == by_kind(expected.messages)


@cache
def graph_of(name: str) -> DynamicGraph:
    if name == "social":
        return Social(nodes=16, snapshots=7, edges=24, communities=3, seed=1).write().with_features(Degrees())
    return AWKWARD[name].build().with_features(Degrees())


@cache
def calls_of(model: str, name: str, length: int) -> list[ViewCall]:
    torch.manual_seed(0)
    made = make_model(model, 2, hidden=4, **NAMES[model])
    return repeat_calls(trace_view_calls(made, graph_of(name)[:TRACED]), length)


def check(name: str, plan: Plan, num_ranks: int, window: int) -> set[str]:
    """Check every rank, model and window. Returns the kinds that were sent."""
    graph, kinds = graph_of(name), set[str]()
    windows = [range(t, min(t + window, len(graph))) for t in range(0, len(graph), window)]
    placed = plan.placement.place(graph, windows, num_ranks).with_sequence_owner(graph)
    sharings = [PartitionedGraph(graph, plan, FakeComm(rank, num_ranks), placed) for rank in range(num_ranks)]
    for number, times in enumerate(windows):
        cells = [sharing.window_data(times) for sharing in sharings]
        local = cells[0].local_partition
        home = np.full(graph.num_nodes, NO_RANK, np.int16) if local is None else local.home
        for model in NAMES:
            calls, carries = calls_of(model, name, len(times)), number > 0
            found = comm_volume_of_all_ranks(
                graph, placed, plan.exchange, times, calls, home=home, continues_state=carries
            )
            for rank, each in enumerate(cells):
                assert_same(found, each.local_partition, rank, calls, carries=carries)
                assert found.cells[:, rank].tolist() == np.diff(each.cell_ptr).tolist()
                assert found.arcs[:, rank].sum() == each.num_arcs
            assert (found.traffic.pipeline is not None) == ("relay" in found.traffic.sent)
            kinds |= set(found.traffic.sent)
    return kinds


@pytest.mark.parametrize(("number", "placement"), [*enumerate([*PLACEMENTS, BySnapshot(round_robin=False)])], ids=str)
def test_counts_of_all_ranks_are_those_of_each_rank(number: int, placement: Placement) -> None:
    """Every placement meets every time exchange and every graph, and every exchange meets every graph."""
    for kind, time in enumerate(TIMES):
        plan = Plan(placement=placement, exchange=Exchange(structure=Halo(), time=time))
        with patch.object(legs, "MIN_CELLS", 1):
            for num_ranks in (4, 1 + (number + kind) % 2):
                if not plan.conflicts(num_ranks):
                    assert bool(check("social", plan, num_ranks, window=4)) == (num_ranks > 1)
            for name in GRAPHS[(number + kind) % len(TIMES) :: len(TIMES)] if not plan.conflicts(3) else ():
                check(name, plan, 3, window=2)


def test_the_cases_have_every_kind() -> None:
    plans = [Plan(placement=placement) for placement in (BySnapshot(), TimeBlocks(parts=2))]
    assert set.union(*(check("social", plan, 4, window=4) for plan in plans)) == set(KINDS)


@st.composite
def view_calls(draw: st.DrawFn, length: int) -> list[ViewCall]:
    """Calls in any order, also those that no model of ours makes."""
    columns = st.integers(1, 3)
    one = st.integers(0, length - 1) if length else st.nothing()
    norm = st.sampled_from(["gcn", "mean_out"])
    pull = st.builds(ViewCall, st.just("pull"), columns, norm=norm, snapshot=st.none() | one, is_input=st.booleans())
    over = st.builds(
        ViewCall, st.just("over_time"), columns, columns, has_row_state=st.booleans(), state_columns=st.integers(1, 3)
    )
    gather = st.builds(ViewCall, st.just("gather_state"), columns, snapshot=one) if length else st.nothing()
    return draw(st.lists(pull | over | gather, max_size=5))


@given(st.data(), owned_graphs(min_ranks=1, some=True), st.booleans(), st.sampled_from([1, 2, 5]))
@settings(deadline=None, max_examples=60)
def test_any_owners_any_homes_and_any_calls(data: st.DataObject, owned: Owned, carries: bool, groups: int) -> None:
    graph, placed, num_ranks = owned.graph, owned.placed, owned.num_ranks
    calls = data.draw(view_calls(len(graph)))
    homes = st.lists(st.integers(NO_RANK, num_ranks - 1), min_size=graph.num_nodes, max_size=graph.num_nodes)
    home = np.array(data.draw(homes), np.int16)
    time = data.draw(st.sampled_from([Relay(pipeline_groups=groups), Shuffle(), Wrapped(inner=Shuffle())]))
    exchange = Exchange(structure=Halo(), time=time)
    with patch.object(legs, "MIN_CELLS", 1):
        options: dict[str, Any] = {"home": home, "continues_state": carries, "cell_masks": owned.chosen}
        found = comm_volume_of_all_ranks(graph, placed, exchange, range(len(graph)), calls, **options)
        for rank in range(num_ranks):
            local = owned.share(FakeComm(rank, num_ranks), exchange, home)
            assert_same(found, local, rank, calls, carries=carries)
            assert found.cells[:, rank].tolist() == [len(own) for own in local.own]
            assert found.arcs[:, rank].tolist() == [graph[t].in_degree[own].sum() for t, own in enumerate(local.own)]
    for kind, sent in found.traffic.sent.items():
        assert sent.sum() == found.traffic.received[kind].sum(), "what one sends another receives"


def test_float64_has_twice_the_bytes_and_a_stale_or_unknown_exchange_the_same() -> None:
    graph, home = graph_of("social"), np.full(16, NO_RANK, np.int16)
    placed = BySnapshot().place(graph, [range(7)], 3).with_sequence_owner(graph)
    fresh = Exchange(structure=Halo(), time=Relay())
    stale = Exchange(structure=Stale(), time=StaleTime(inner=Relay()))
    own = Exchange(structure=Halo(), time=Wrapped(inner=Relay()))
    calls = calls_of("mpnn-lstm", "social", 7)
    for exchange, dtype, factor in ((fresh, torch.float64, 2), (stale, torch.float32, 1), (own, torch.float32, 1)):
        one, other = (
            comm_volume_of_all_ranks(graph, placed, each, range(7), calls, home=home, dtype=size).traffic
            for each, size in ((fresh, torch.float32), (exchange, dtype))
        )
        for rank in range(3):
            assert {kind: factor * sent for kind, sent in of_rank(one.sent, rank).items()} == of_rank(other.sent, rank)
            assert of_rank(one.messages, rank) == of_rank(other.messages, rank) != {}


def test_replicas_have_everything_and_send_nothing() -> None:
    graph, home = graph_of("social"), np.full(16, NO_RANK, np.int16)
    placed = Replicated().place(graph, [range(7)], 3)
    calls = calls_of("dcrnn", "social", 5)
    found = comm_volume_of_all_ranks(graph, placed, Plan().exchange, range(1, 6), calls, home=home)
    assert (found.traffic.sent, found.traffic.received, found.traffic.messages) == ({}, {}, {})
    assert (found.cells == [[snapshot.num_nodes] for snapshot in graph[1:6]]).all()
    assert (found.arcs == [[snapshot.num_arcs] for snapshot in graph[1:6]]).all()


@pytest.mark.parametrize(("model", "time"), [("mpnn-lstm", Relay()), ("dysat", Shuffle()), ("dcrnn", NoTimeExchange())])
def test_batches_of_some_nodes_count_only_the_cells_that_take_part(model: str, time: TimeExchange) -> None:
    placement = Metis() if isinstance(time, NoTimeExchange) else BySnapshot()
    plan = Plan(placement=placement, batching=Vertices(size=12), exchange=Exchange(structure=Halo(), time=time))
    graph = Social(nodes=60, snapshots=8, edges=25, communities=4, seed=5).write()
    partitioned = partitioned_job(request_of(graph, model, plan))
    sharings = [
        PartitionedGraph(partitioned.graph, plan, FakeComm(rank, 3), partitioned.partition) for rank in range(3)
    ]
    sizes = []
    for batch, found in partitioned.comm_volumes():
        calls = repeat_calls(partitioned.view_calls, len(batch.times))
        for rank, sharing in enumerate(sharings):
            (segment,) = window_of_batch(sharing, batch, None)
            assert_same(found, segment.data.local_partition, rank, calls, carries=False)
            assert found.cells[:, rank].tolist() == np.diff(segment.data.cell_ptr).tolist()
            assert found.arcs[:, rank].sum() == segment.data.num_arcs
        sizes.append(found.cells.sum())
    assert len(sizes) > 1
    assert min(sizes) < partitioned.graph.cell_ptr[batch.times.stop], "some cells take no part"


def request_of(graph: DynamicGraph, model: str, plan: Plan, **settings: Any) -> TrainRequest:
    options = {"layers": 2} if model == "dysat" else {}
    return planner_jobs.request_of(model, graph, plan=plan, options=options, **settings)


def partitioned_job(request: TrainRequest) -> PartitionedJob:
    return PartitionedJob(resolve(request, None, Progress(), FakeComm(0, 3)), Progress())


OVERLAPPED = Plan(placement=Metis(), exchange=Exchange(structure=Overlapped(), time=Relay(pipeline_groups=2)))
OWN = Plan(placement=TimeBlocks(), exchange=Exchange(structure=Halo(), time=Wrapped(inner=Relay(pipeline_groups=2))))
PLANS = [*map(preset, ("relay", "pss", "pts", "pss-ts", "metis", "hash")), OVERLAPPED]
REAL = [(model, PLANS[k % len(PLANS)]) for k, model in enumerate(MODELS)]
REAL += [("wd-gcn", OWN), ("dcrnn", preset("pss")), ("dysat", preset("pss-ts")), ("dcrnn", OVERLAPPED)]


@pytest.mark.parametrize(
    ("model", "plan"), REAL, ids=lambda each: each if isinstance(each, str) else str(each.placement)
)
def test_bytes_and_messages_are_those_that_real_ranks_count(
    model: str, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legs, "MIN_CELLS", 4)
    request = request_of(small_graph(), model, plan, epochs=1, evaluate_every=2, window=3)
    ledgers = as_threads(lambda comm: train_on_rank(request, OutputConfig(), Progress(), comm), 3)[0].ranks
    windows = [found.traffic for _, found in partitioned_job(request).comm_volumes()]
    for rank, ledger in enumerate(ledgers):
        for name in ("sent", "messages"):
            keys = {tuple(key.split("/")): number for key, number in ledger[name].items()}
            training = {
                (phase, kind): number
                for (phase, kind), number in keys.items()
                if phase in ("forward", "backward") and kind in KINDS
            }
            predicted = sum((Counter(of_rank(getattr(each, name), rank)) for each in windows), Counter())
            assert by_kind(training) == dict(predicted), name
