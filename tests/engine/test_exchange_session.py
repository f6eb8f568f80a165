"""Training with stale exchanges: exact where nothing is held back, to the byte where something is, and resumed."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch
from torch import Tensor

from strobe.comm import Comm
from strobe.comm.rows import Route
from strobe.engine.checkpoint.store import LAST, read_checkpoint
from strobe.engine.context import ExchangeSession
from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.job import Job
from strobe.engine.launch.processes import OutputConfig
from strobe.engine.partitioned_graph import PartitionedGraph
from strobe.engine.progress import Progress
from strobe.engine.run import Run
from strobe.engine.trace import trace_view_calls
from strobe.engine.train import train_on_rank
from strobe.exchange import Exchange, Halo, Overlapped, Relay, Shuffle, Stale, StaleTime
from strobe.exchange.dry_run import FakeComm
from strobe.exchange.shuffle import ShuffleTimeStage
from strobe.exchange.stale import StaleExchange
from strobe.models import make_model
from strobe.placement import Hash, MetisPerSnapshot, Partition, Placement
from strobe.plan import Plan
from strobe.planner.comm.volume import comm_volume_of_rank
from strobe.view import LocalPartition
from tests.support.ranks import as_threads
from tests.support.runs import same_tensors, short_graph
from tests.support.trainer import Trainer

MODELS: dict[str, dict[str, Any]] = {
    "wd-gcn": {"layers": 2},
    "dysat": {"layers": 2, "time_layers": 2, "heads": 2},
    "mpnn-lstm": {},
    "gat-lstm": {"layers": 2, "heads": 2},
    "dcrnn": {},
}
FRESH = Exchange(structure=Halo(), time=Relay(pipeline_groups=2))


def trainer_of(name: str, monkeypatch: pytest.MonkeyPatch, task: str = "link-prediction") -> Trainer:
    trainer = Trainer(short_graph(), name, task)
    torch.manual_seed(0)
    trainer.model = make_model(name, 2, hidden=4, **MODELS[name])
    trainer.same_head(monkeypatch)
    trainer.train(Plan(), 1, epochs=1)  # makes the head; threads would all draw from one stream of numbers
    return trainer


def stale(share: float | None, **options: Any) -> Exchange:
    time = StaleTime(threshold=share, inner=Relay(pipeline_groups=2), **options)
    return Exchange(structure=Stale(threshold=share, **options), time=time)


def weights(run: Run) -> list[Tensor]:
    return [*run.model.state_dict().values(), *run.head.state_dict().values()]


CASES = ((2, MetisPerSnapshot(), None), (3, Hash(), None), (3, MetisPerSnapshot(), 2))


@pytest.mark.parametrize(
    ("name", "num_ranks", "placement", "recompute"),
    [(name, *case) for name, case in zip(MODELS, cycle(CASES), strict=False)],
)
def test_threshold_0_is_exact_to_the_bit(
    name: str, num_ranks: int, placement: Placement, recompute: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trainer_of(name, monkeypatch)
    fresh, sent = (
        trainer.train(
            Plan(placement=placement, exchange=each), num_ranks, window=3, epochs=3, recompute=recompute, patience=0
        )
        for each in (FRESH, stale(0.0))
    )
    for one, other in zip(fresh, sent, strict=True):
        assert [line["loss"] for line in one.history] == [line["loss"] for line in other.history]
        assert same_tensors(weights(one), weights(other))
        assert (one.validation, one.test) == (other.validation, other.test)
    kept = {key for line in sent[0].history for each in line["ranks"] for key in each["suppressed_bytes"]}
    assert not any("forward" in key for key in kept)
    assert bool(kept) == bool(recompute), "what is computed again need not come again"


@pytest.mark.parametrize("share", [0.5, None])
def test_suppressed_rows_change_training_and_are_counted(share: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of("dysat", monkeypatch, "regression")
    plans = [Plan(placement=MetisPerSnapshot(), exchange=each) for each in (FRESH, stale(share))]
    fresh, spared = (trainer.train(plan, 2, epochs=3, evaluate_every=99)[0] for plan in plans)
    assert fresh.history[0]["loss"] == spared.history[0]["loss"], "the first epoch is fresh"
    assert not same_tensors(weights(fresh), weights(spared))
    for rank in range(2):
        assert not fresh.ranks[rank]["suppressed_rows"]
        counted = spared.ranks[rank]["suppressed_rows"]
        assert all(counted[f"{phase}/{kind}"] for phase in ("forward", "backward") for kind in ("halo", "shuffle"))


def test_evaluation_is_exact_and_leaves_training_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of("dysat", monkeypatch)
    plan = Plan(placement=MetisPerSnapshot(), exchange=stale(0.5))
    often, never = (trainer.train(plan, 2, epochs=3, evaluate_every=every, patience=0)[0] for every in (1, 99))
    assert [line["loss"] for line in often.history] == [line["loss"] for line in never.history]
    for rank, ledger in enumerate(often.ranks):
        assert not any(key.startswith("evaluate") for key in ledger["suppressed_rows"]), rank
        assert not any(key == "evaluate/masks" for key in ledger["sent"]), rank


@pytest.mark.parametrize(("name", "placement"), list(zip(MODELS, cycle((Hash(), MetisPerSnapshot())), strict=False)))
def test_sent_and_suppressed_bytes_are_those_predicted_for_an_exact_exchange(
    name: str, placement: Placement, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks, epochs = 2, 2
    trainer = trainer_of(name, monkeypatch, "regression")
    structure, time = Stale(threshold=0.4), StaleTime(threshold=0.4, inner=Shuffle())
    plan = Plan(placement=placement, exchange=Exchange(structure=structure, time=time))
    settings: dict[str, Any] = {"epochs": epochs, "threads": 1, "evaluate_every": 99, "window": 3}
    given = TrainRequest(
        trainer.graph, lambda _: deepcopy(trainer.model), "regression", None, None, settings, None, plan
    )
    run = as_threads(lambda comm: train_on_rank(given, OutputConfig(), Progress(), comm), ranks)[0]
    spared = [sum(sum(each["suppressed_bytes"].values()) for each in line["ranks"]) for line in run.history]
    assert spared[0] == 0 < sum(spared)
    for rank in range(ranks):
        fresh, marks = expected(resolve(given, None, Progress(), num_ranks=ranks), trainer.model, rank, ranks)
        for number, line in enumerate(run.history):
            ledger = line["ranks"][rank]
            sent = {key: ledger["sent"].get(key, 0) + ledger["suppressed_bytes"].get(key, 0) for key in fresh}
            assert sent == fresh, (rank, number)
            assert ledger["sent"].get("forward/masks", 0) == (marks if number else 0)


def expected(job: Job, model: torch.nn.Module, rank: int, num_ranks: int) -> tuple[dict[str, int], int]:
    """Bytes of rows that a rank sends in a fresh epoch, by phase and kind, and of the marks of a stale one."""
    graph, found, marks = job.problem.graph, dict[str, int](), 0
    split = job.problem.split
    later = [range(t, min(t + 3, part.stop)) for part in (split.validation, split.test) for t in part[::3]]
    windows = [*(batch.times for batch in job.batches), *later]
    placed = job.plan.placement.place(graph, windows, num_ranks).with_sequence_owner(graph)
    sharing = PartitionedGraph(graph, job.plan, FakeComm(rank, num_ranks), placed)
    for batch in job.batches:
        share = sharing.window_data(batch.times).local_partition
        assert share is not None
        calls = trace_view_calls(model, graph[batch.times.start : batch.times.stop])
        for (phase, kind), num_bytes in comm_volume_of_rank(share, calls).sent.items():
            if kind in ("halo", "shuffle"):
                found[f"{phase}/{kind}"] = found.get(f"{phase}/{kind}", 0) + num_bytes
        marks += sum(-(-len(rows) // 8) for call in calls for route in routes(share, call) for rows in _sent(route))
    return found, marks


def routes(share: LocalPartition, call: Any) -> list[Route]:
    """The routes of one use of a view."""
    if call.what == "pull" and not call.is_input:
        whose = share if call.snapshot is None else share.single(call.snapshot, share.home)
        reads = "out" if call.norm == "mean_out" and share.graph.directed else "in"
        return [whose.halo_cells(reads).route]  # type: ignore[arg-type]
    timing = share.time_stage(call) if call.what == "over_time" else None
    return [timing.route_to_owner, timing.route_from_owner] if isinstance(timing, ShuffleTimeStage) else []


def _sent(route: Route) -> list[Tensor]:
    return list(route.send.values())


def test_losses_of_the_first_and_the_last_epoch_reach_every_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[float | None, float | None]] = []
    tell = StaleExchange.begin_epoch

    def heard(self: StaleExchange, first: float | None, last: float | None) -> None:
        told.append((first, last))
        tell(self, first, last)

    monkeypatch.setattr(StaleExchange, "begin_epoch", heard)
    trainer = trainer_of("wd-gcn", monkeypatch)
    run = trainer.train(Plan(placement=Hash(), exchange=stale(None)), 2, epochs=3)[0]
    losses = [None, *(line["loss"] for line in run.history)]
    assert set(told) == {(losses[1] if epoch else None, losses[epoch]) for epoch in range(3)}
    assert len(told) == 3 * 2 * 2  # epochs, ranks, stages


class Resumed:
    """Runs as threads, whose rank 0 keeps a record; from the same weights."""

    def __init__(self, trainer: Trainer, exchange: Exchange, **changes: Any) -> None:
        plan = Plan(placement=MetisPerSnapshot(), exchange=exchange)
        self.trainer, self.plan, self.changes = trainer, plan, changes

    def __call__(self, out: Path, epochs: int, ranks: int, *, resume: bool = False) -> list[Run]:
        settings = {"epochs": epochs, "threads": 1, "patience": 0, "window": 3, "evaluate_every": 99} | self.changes
        model, graph = self.trainer.model, self.trainer.graph
        given = TrainRequest(graph, lambda _: deepcopy(model), "link-prediction", None, None, settings, None, self.plan)
        return as_threads(lambda comm: train_on_rank(given, OutputConfig(out, resume=resume), Progress(), comm), ranks)


def overlapped(inner: Any) -> Exchange:
    """For models whose convolutions send once each: snapshots go by the length of their messages, not by time taken."""
    return Exchange(structure=Overlapped(inner=inner), time=Relay(pipeline_groups=2))


@pytest.mark.parametrize(
    ("name", "exchange", "recompute"),
    [
        ("wd-gcn", stale(None), None),
        ("dysat", stale(None), 2),
        ("dcrnn", stale(None), None),
        ("gat-lstm", overlapped(Stale(threshold=0.5)), 2),
        ("mpnn-lstm", overlapped(Halo()), None),
    ],
    ids=str,
)
def test_a_resumed_run_ends_with_the_bits_of_an_uninterrupted_one(
    name: str, exchange: Exchange, recompute: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_on = Resumed(trainer_of(name, monkeypatch), exchange, recompute=recompute)
    whole = train_on(tmp_path / "whole", 3, 2)
    train_on(tmp_path / "parts", 2, 2)
    copytree(tmp_path / "parts", tmp_path / "forgot")
    parts = train_on(tmp_path / "parts", 3, 2, resume=True)
    assert same_tensors([weights(run) for run in parts], [weights(run) for run in whole])
    found, wanted = (read_checkpoint(tmp_path / each / LAST)["parts"]["exchange"] for each in ("parts", "whole"))
    assert len(wanted["ranks"]) == 2
    if isinstance(exchange.structure, Overlapped):
        lines = [share["structure"][0]["timing"]["lines"] for rank in wanted["ranks"] for share in rank]
        assert all(each == lines[0] for each in lines), "the timing model is one for all windows of all ranks"
        return
    assert same_tensors(found, wanted)
    # Not by chance: a state that is not loaded makes a difference.
    monkeypatch.setattr(StaleExchange, "load_state_dict", lambda *_: None)
    forgot = train_on(tmp_path / "forgot", 3, 2, resume=True)
    assert not same_tensors(weights(forgot[0]), weights(whole[0]))


def test_a_state_of_other_ranks_owners_or_segments_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of("wd-gcn", monkeypatch)
    Resumed(trainer, stale(0.5))(tmp_path / "run", 2, 2)
    place = MetisPerSnapshot.place
    for change in ("ranks", "segments", "owners"):
        out = copytree(tmp_path / "run", tmp_path / change)
        if change == "owners":
            monkeypatch.setattr(MetisPerSnapshot, "place", lambda self, *a, **k: _turned(place(self, *a, **k)))
        again = Resumed(trainer, stale(0.5), **({"recompute": 2} if change == "segments" else {}))
        runs = again(out, 4, 3 if change == "ranks" else 2, resume=True)
        spared = [any("forward/halo" in each["suppressed_rows"] for each in line["ranks"]) for line in runs[0].history]
        assert spared == [False, True, False, True], change


def _turned(placed: Partition) -> Partition:
    """Each of two ranks has what the other had."""
    assert placed.cell_owner is not None
    return replace(placed, cell_owner=1 - placed.cell_owner, sequence_owner=None)


def test_exact_exchanges_have_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Resumed(trainer_of("wd-gcn", monkeypatch), FRESH)(tmp_path / "run", 2, 2)
    assert read_checkpoint(tmp_path / "run" / LAST)["parts"]["exchange"] is None


def test_a_session_without_partitions_has_no_state() -> None:
    def work(comm: Comm) -> None:
        session = ExchangeSession(comm, list)
        session.begin_epoch([])
        assert session.state_dict() is None
        session.load_state_dict({"where": "", "ranks": [[]]})

    as_threads(work, 2)
