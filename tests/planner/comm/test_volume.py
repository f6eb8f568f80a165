from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.batching import Vertices
from strobe.comm import Comm
from strobe.comm.rows import Route
from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.launch.processes import OutputConfig
from strobe.engine.model_costs import TRACED
from strobe.engine.partitioned_graph import PartitionedGraph
from strobe.engine.progress import Progress
from strobe.engine.run import Run
from strobe.engine.trace import ViewCall, trace_view_calls
from strobe.engine.train import train_on_rank
from strobe.engine.windows import window_of_batch
from strobe.exchange import Exchange, Halo, NoTimeExchange, Overlapped, Relay, Shuffle, Stale, StaleTime
from strobe.exchange.relay import legs
from strobe.exchange.relay.legs import NO_RANK
from strobe.exchange.relay.strategy import RelayTimeStage
from strobe.exchange.shuffle import ShuffleTimeStage
from strobe.graph import Degrees, DynamicGraph
from strobe.graph.synthetic import Social
from strobe.models import MODELS, make_model
from strobe.placement import BySnapshot, Metis, Partition, Placement, Replicated, TimeBlocks
from strobe.plan import Plan
from strobe.planner.comm.volume import FakeComm, PassVolume, comm_volume_of_all_ranks, comm_volume_of_rank
from strobe.planner.rank_costs import PartitionedJob, repeat_calls
from strobe.planner.services import PlannerServices
from strobe.presets import preset
from strobe.registry import AXES
from strobe.view import LocalPartition
from strobe.view.partition.local import Reads
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
}
PLACEMENTS = [choice() for name, choice in AXES["placement"].items() if name != "replicated"]
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


def messages_of(share: LocalPartition, calls: Sequence[ViewCall], *, carries: bool) -> dict[str, int]:
    """What one rank tells others, by kind: from the routes that it would take."""
    found = Counter[str]()

    def add(kind: str, route: Route) -> None:
        found[kind] += len(route.send) + len(route.receive)

    for call in calls:
        if call.what == "pull" and not call.is_input:
            reads: Reads = "out" if call.norm == "mean_out" else "in"
            whose = share if call.snapshot is None else share.single(call.snapshot, share.home)
            add("halo", whose.halo_cells(reads).route)
        elif call.what == "recall":
            moved = share.handovers()[call.snapshot or 0]
            if moved is not None:
                add("state", moved.route)
        elif call.what == "over_time":
            timing = share.time_stage(call)  # type: ignore[arg-type]
            if isinstance(timing, RelayTimeStage):
                found["relay"] += sum(len(task.send_legs) + len(task.recv_legs) for task in timing.tasks)
                found["carry"] += len(timing.route.send) if carries else 0
            elif isinstance(timing, ShuffleTimeStage):
                add("shuffle", timing.route_to_owner)
                add("shuffle", timing.route_from_owner)
    return dict(+found)


def received_by(
    share: LocalPartition, calls: Sequence[ViewCall], sent: dict[str, int], *, carries: bool
) -> dict[str, int]:
    """Bytes that come to a rank: as many as it sends, but for states of an earlier window, which go one way."""
    found = Counter({kind: number for kind, number in sent.items() if kind != "carry"})
    for call in calls if carries else ():
        timing = share.time_stage(call) if call.what == "over_time" else None  # type: ignore[arg-type]
        if isinstance(timing, RelayTimeStage):
            found["carry"] += 4 * timing.route.rows_received * call.state_columns
    return dict(+found)


def of_rank(found: dict[str, Any], rank: int) -> dict[str, int]:
    return {kind: int(each[rank]) for kind, each in found.items() if each[rank]}


def assert_same(
    found: PassVolume, share: LocalPartition | None, rank: int, calls: Sequence[ViewCall], *, carries: bool
) -> None:
    """One rank sends, receives and says in all what its share says."""
    if share is None:
        assert not of_rank(found.sent, rank)
        assert not of_rank(found.received, rank)
        assert not of_rank(found.messages, rank)
        return
    expected = comm_volume_of_rank(share, calls, continues_state=carries)
    sent = {kind: each.num_bytes + each.grad_bytes for kind, each in expected.items()}
    assert of_rank(found.sent, rank) == {kind: number for kind, number in sent.items() if number}
    assert of_rank(found.received, rank) == received_by(share, calls, sent, carries=carries)
    assert of_rank(found.messages, rank) == messages_of(share, calls, carries=carries)


def most_legs(graph: DynamicGraph, placed: Partition, times: range) -> int:
    """How many stretches of one owner a sequence has at most, the slow way."""
    seen: dict[int, list[int]] = {}
    for t in times:
        for node, owner in zip(graph[t].nodes.tolist(), placed.owners(graph, t).tolist(), strict=True):
            if seen.setdefault(node, [])[-1:] != [owner]:
                seen[node].append(owner)
    return max([1, *map(len, seen.values())])


@cache
def graph_of(name: str) -> DynamicGraph:
    if name == "social":
        return Social(nodes=16, snapshots=7, edges=24, communities=3, seed=1).write().with_features(Degrees())
    return AWKWARD[name].build().with_features(Degrees())


@cache
def calls_of(model: str, name: str, length: int) -> list[ViewCall]:
    torch.manual_seed(0)
    return repeat_calls(
        trace_view_calls(make_model(model, 2, hidden=4, **NAMES[model]), graph_of(name)[:TRACED]), length
    )


def check(name: str, plan: Plan, num_ranks: int, window: int) -> set[str]:
    """Every rank, model and window. Gives the kinds that were sent."""
    graph, kinds = graph_of(name), set[str]()
    windows = [range(t, min(t + window, len(graph))) for t in range(0, len(graph), window)]
    placed = plan.placement.place(graph, windows, num_ranks).with_sequence_owner(graph)
    sharings = [PartitionedGraph(graph, plan, FakeComm(rank, num_ranks), placed) for rank in range(num_ranks)]
    for number, times in enumerate(windows):
        cells = [sharing.window_data(times) for sharing in sharings]
        share = cells[0].local_partition
        home = np.full(graph.num_nodes, NO_RANK, np.int16) if share is None else share.home
        for model in NAMES:
            calls, carries = calls_of(model, name, len(times)), number > 0
            found = comm_volume_of_all_ranks(
                graph, placed, plan.exchange, times, calls, home=home, continues_state=carries
            )
            for rank, each in enumerate(cells):
                assert_same(found, each.local_partition, rank, calls, carries=carries)
                assert found.cells[:, rank].tolist() == np.diff(each.cell_ptr).tolist()
                assert found.arcs[:, rank].sum() == each.num_arcs
            relays = "relay" in found.sent
            assert found.waves == (most_legs(graph, placed, times) if relays else 1)
            kinds |= set(found.sent)
    return kinds


@pytest.mark.parametrize("time", TIMES, ids=lambda time: str(time.name))
@pytest.mark.parametrize("placement", [*PLACEMENTS, BySnapshot(round_robin=False)], ids=str)
def test_all_ranks_at_once_are_each_by_itself(placement: Placement, time: Any) -> None:
    plan = Plan(placement=placement, exchange=Exchange(structure=Halo(), time=time))
    with patch.object(legs, "MIN_CELLS", 1):
        for num_ranks in (1, 2, 3, 4):
            if plan.conflicts(num_ranks):
                continue
            kinds = check("social", plan, num_ranks, window=3 if num_ranks % 2 else 4)
            assert bool(kinds) == (num_ranks > 1)
        for name in GRAPHS:
            if not plan.conflicts(3):
                check(name, plan, 3, window=2)


def test_the_cases_have_every_kind() -> None:
    kinds = set[str]()
    for placement in (BySnapshot(), TimeBlocks(parts=2)):
        kinds |= check("social", Plan(placement=placement), 4, window=4)
    assert kinds == {"halo", "relay", "carry", "state", "shuffle"}
    waves = [
        comm_volume_of_all_ranks(
            graph_of("social"),
            placement.place(graph_of("social"), [range(7)], 2).with_sequence_owner(graph_of("social")),
            Plan().exchange,
            range(7),
            calls_of("tgcn", "social", 7),
            home=np.full(16, NO_RANK, np.int16),
        ).waves
        for placement in (BySnapshot(round_robin=False), BySnapshot())
    ]
    assert waves[0] == 2 < waves[1]


@st.composite
def calls(draw: st.DrawFn, length: int) -> list[ViewCall]:
    """What no model of ours may do, but one could."""
    columns = st.integers(1, 3)
    one = st.integers(0, length - 1) if length else st.nothing()
    norm = st.sampled_from(["gcn", "mean_out"])
    pull = st.builds(ViewCall, st.just("pull"), columns, norm=norm, snapshot=st.none() | one, is_input=st.booleans())
    over = st.builds(
        ViewCall, st.just("over_time"), columns, columns, has_row_state=st.booleans(), state_columns=st.integers(1, 3)
    )
    recall = st.builds(ViewCall, st.just("recall"), columns, snapshot=one) if length else st.nothing()
    return draw(st.lists(pull | over | recall, max_size=5))


@given(st.data(), owned_graphs(min_ranks=1, some=True), st.booleans(), st.sampled_from([1, 2, 5]))
@settings(deadline=None, max_examples=100)
def test_any_owners_any_homes_and_any_calls(data: st.DataObject, owned: Owned, carries: bool, groups: int) -> None:
    graph, placed, num_ranks = owned.graph, owned.placed, owned.num_ranks
    asked = data.draw(calls(len(graph)))
    homes = st.lists(st.integers(NO_RANK, num_ranks - 1), min_size=graph.num_nodes, max_size=graph.num_nodes)
    home = np.array(data.draw(homes), np.int16)
    exchange = Exchange(structure=Halo(), time=data.draw(st.sampled_from([Relay(pipeline_groups=groups), Shuffle()])))
    with patch.object(legs, "MIN_CELLS", 1):
        options: dict[str, Any] = {"home": home, "continues_state": carries, "cell_masks": owned.chosen}
        found = comm_volume_of_all_ranks(graph, placed, exchange, range(len(graph)), asked, **options)
        for rank in range(num_ranks):
            share = owned.share(FakeComm(rank, num_ranks), exchange, home)
            assert_same(found, share, rank, asked, carries=carries)
            assert found.cells[:, rank].tolist() == [len(own) for own in share.own]
            mine = [graph[t].in_degree[own].sum() for t, own in enumerate(share.own)]
            assert found.arcs[:, rank].tolist() == mine
    for kind, sent in found.sent.items():
        assert sent.sum() == found.received[kind].sum(), "what one sends another receives"


def test_numbers_twice_as_wide_are_twice_the_bytes_in_as_many_messages() -> None:
    graph, exchange = graph_of("social"), Plan().exchange
    placed = BySnapshot().place(graph, [range(7)], 3).with_sequence_owner(graph)
    home = np.full(graph.num_nodes, NO_RANK, np.int16)
    asked = calls_of("mpnn-lstm", "social", 7)
    one, other = (
        comm_volume_of_all_ranks(graph, placed, exchange, range(7), asked, home=home, item_bytes=size)
        for size in (4, 8)
    )
    assert one.sent
    for kind in one.sent:
        assert (2 * one.sent[kind]).tolist() == other.sent[kind].tolist()
        assert (2 * one.received[kind]).tolist() == other.received[kind].tolist()
        assert one.messages[kind].tolist() == other.messages[kind].tolist()


def test_the_first_pass_of_a_stale_exchange_sends_what_a_fresh_one_does() -> None:
    graph, home = graph_of("social"), np.full(16, NO_RANK, np.int16)
    placed = BySnapshot().place(graph, [range(7)], 3).with_sequence_owner(graph)
    fresh, stale = (
        Exchange(structure=Halo(), time=Relay()),
        Exchange(structure=Stale(), time=StaleTime(inner=Relay())),
    )
    for model in NAMES:
        asked = calls_of(model, "social", 7)
        one, other = (
            comm_volume_of_all_ranks(graph, placed, each, range(7), asked, home=home) for each in (fresh, stale)
        )
        for rank in range(3):
            assert of_rank(one.sent, rank) == of_rank(other.sent, rank)
            assert of_rank(one.messages, rank) == of_rank(other.messages, rank)


def test_replicas_have_everything_and_send_nothing() -> None:
    graph, home = graph_of("social"), np.full(16, NO_RANK, np.int16)
    placed = Replicated().place(graph, [range(7)], 3)
    found = comm_volume_of_all_ranks(
        graph, placed, Plan().exchange, range(1, 6), calls_of("dcrnn", "social", 5), home=home
    )
    assert (found.sent, found.received, found.messages, found.waves) == ({}, {}, {}, 1)
    for rank in range(3):
        assert found.cells[:, rank].tolist() == [snapshot.num_nodes for snapshot in graph[1:6]]
        assert found.arcs[:, rank].tolist() == [snapshot.num_arcs for snapshot in graph[1:6]]


@pytest.mark.parametrize("time", TIMES, ids=lambda time: str(time.name))
@pytest.mark.parametrize("model", ["mpnn-lstm", "dcrnn", "dysat"])
def test_batches_of_some_nodes_count_only_the_cells_that_take_part(model: str, time: Any) -> None:
    placement = Metis() if isinstance(time, NoTimeExchange) else BySnapshot()
    plan = Plan(placement=placement, batching=Vertices(size=12), exchange=Exchange(structure=Halo(), time=time))
    graph = Social(nodes=60, snapshots=8, edges=25, communities=4, seed=5).write()
    given = TrainRequest(
        graph, model, "regression", {"hidden": 4}, None, {"device": "cpu"}, None, plan, services=PlannerServices()
    )
    job = resolve(given, None, Progress(), FakeComm(0, 3))
    placed = PartitionedJob(job, Progress())
    sharings = [PartitionedGraph(placed.graph, plan, FakeComm(rank, 3), placed.partition) for rank in range(3)]
    sizes = []
    for batch, found in placed.comm_volumes():
        calls = repeat_calls(placed.view_calls, len(batch.times))
        for rank, sharing in enumerate(sharings):
            (segment,) = window_of_batch(sharing, batch, None)
            assert_same(found, segment.data.local_partition, rank, calls, carries=False)
            assert found.cells[:, rank].tolist() == np.diff(segment.data.cell_ptr).tolist()
            assert found.arcs[:, rank].sum() == segment.data.num_arcs
        sizes.append(found.cells.sum())
    assert len(sizes) > 1
    assert min(sizes) < placed.graph.cell_ptr[batch.times.stop], "some cells take no part"


OVERLAPPED = Plan(placement=Metis(), exchange=Exchange(structure=Overlapped(), time=Relay(pipeline_groups=2)))
"""Rows of each snapshot travel by themselves, but for those of models that step through time."""


@pytest.mark.parametrize(
    ("model", "plan"),
    [
        ("wd-gcn", preset("relay")),
        ("wd-gcn", preset("pss")),
        ("dcrnn", preset("metis")),
        ("dcrnn", preset("pss")),
        ("dysat", preset("pss-ts")),
        *((model, OVERLAPPED) for model in ("mpnn-lstm", "dysat", "dcrnn")),
    ],
    ids=lambda each: each if isinstance(each, str) else str(each.placement),
)
def test_bytes_and_messages_are_those_that_real_ranks_count(
    model: str, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legs, "MIN_CELLS", 4)
    chosen: dict[str, Any] = {"epochs": 1, "threads": 1, "evaluate_every": 2, "window": 3, "device": "cpu"}
    layers = {"layers": 2} if model == "dysat" else {}
    given = TrainRequest(
        small_graph(), model, "regression", {"hidden": 4} | layers, None, chosen, None, plan, services=PlannerServices()
    )

    def work(comm: Comm) -> Run:
        return train_on_rank(given, OutputConfig(), Progress(), comm)

    ledgers = as_threads(work, 3)[0].ranks
    job = resolve(given, None, Progress(), FakeComm(0, 3))
    found = [each for _, each in PartitionedJob(job, Progress()).comm_volumes()]
    for rank, ledger in enumerate(ledgers):
        assert counted(ledger["sent"]) == added(each.sent for each in found)[rank]
        assert counted(ledger["messages"]) == added(each.messages for each in found)[rank]


def counted(ledger: dict[str, int]) -> dict[str, int]:
    """What a ledger has of training, there and back, by kind."""
    total = Counter[str]()
    for key, number in ledger.items():
        phase, _, kind = key.partition("/")
        total[kind] += number if phase in ("forward", "backward") and kind in KINDS else 0
    return dict(+total)


def added(found: Iterable[dict[str, Any]]) -> list[dict[str, int]]:
    """Of all windows together, for each of three ranks."""
    windows = list(found)
    return [dict(sum((Counter(of_rank(each, rank)) for each in windows), Counter())) for rank in range(3)]


RANKS = 3


@pytest.mark.parametrize("plan", ["relay", "pss", "pts", "pss-ts", "metis", "hash", "overlapped"])
@pytest.mark.parametrize("name", MODELS)
def test_predicted_bytes_are_those_of_the_ledger(name: str, plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legs, "MIN_CELLS", 4)
    torch.manual_seed(0)
    model = make_model(name, 2, hidden=4)
    settings: dict[str, Any] = {"epochs": 1, "threads": 1, "evaluate_every": 2, "window": 3}
    chosen = preset("metis" if plan == "overlapped" else plan)
    if plan == "overlapped":
        chosen = replace(chosen, exchange=replace(chosen.exchange, structure=Overlapped()))
    given = TrainRequest(
        small_graph(),
        lambda _: deepcopy(model),
        "regression",
        None,
        None,
        settings,
        None,
        chosen,
        services=PlannerServices(),
    )

    def work(comm: Comm) -> Run:
        return train_on_rank(given, OutputConfig(), Progress(), comm)

    run = as_threads(work, RANKS)[0]
    job = resolve(given, None, Progress(), num_ranks=RANKS)
    graph = job.problem.graph
    placed = job.plan.placement.place(graph, _evaluation_windows(job), RANKS).with_sequence_owner(graph)
    for rank in range(RANKS):
        expected: dict[str, int] = {}
        sharing = PartitionedGraph(graph, job.plan, FakeComm(rank, RANKS), placed)
        for number, batch in enumerate(job.batches):
            share = sharing.window_data(batch.times).local_partition
            assert share is not None
            calls = trace_view_calls(model, graph[batch.times.start : batch.times.stop])
            for kind, sent in comm_volume_of_rank(share, calls, continues_state=number > 0).items():
                for phase, more in (("forward", sent.num_bytes), ("backward", sent.grad_bytes)):
                    expected[f"{phase}/{kind}"] = expected.get(f"{phase}/{kind}", 0) + more
        counted = {
            key: sent
            for key, sent in run.ranks[rank]["sent"].items()
            if key.split("/")[0] in ("forward", "backward") and key.split("/")[1] in KINDS
        }
        assert counted == {key: more for key, more in expected.items() if more}


def _evaluation_windows(job: Any) -> list[range]:
    split = job.problem.split
    later = [range(t, min(t + 3, part.stop)) for part in (split.validation, split.test) for t in part[::3]]
    return [*(batch.times for batch in job.batches), *later]
