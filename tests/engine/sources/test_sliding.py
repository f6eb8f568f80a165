"""Windows that slide: with everything kept they are the whole history, on any number of ranks; else as by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import strobe
from strobe.batching import Groups, Trapezoid
from strobe.engine import Progress
from strobe.engine.checkpoint import store
from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.sources import sliding as engine_sliding
from strobe.engine.sources.sliding import SlidingWindowSource
from strobe.exchange import Exchange, Halo, NoTimeExchange, Overlapped, Stale
from strobe.graph import DynamicGraph
from strobe.models import MODELS
from strobe.placement import Metis, Partition, Placement, PlacementRequest
from strobe.plan import Plan
from strobe.presets import preset
from strobe.schedule import InOrder, RandomSplit, Schedule
from strobe.schedule.base import Lockstep
from strobe.strategy import Fact
from tests.support.runs import CtrlC, same_tensors, short_graph, small_graph, source_of
from tests.support.trainer import Trainer, assert_same


@pytest.fixture(scope="module")
def graph() -> DynamicGraph:
    return short_graph()


def sliding(batching: Trapezoid, chunks: int = 4) -> Plan:
    return Plan(
        placement=Metis(chunks=chunks),
        batching=batching,
        exchange=Exchange(structure=Halo(), time=NoTimeExchange()),
        schedule=InOrder(),
    )


@pytest.mark.parametrize(("number", "model"), list(enumerate(MODELS)))
def test_windows_without_decay_are_the_whole_history(
    graph: DynamicGraph, number: int, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(graph, model, "regression")
    trainer.same_head(monkeypatch)
    history = Plan(batching=Groups(size=len(graph), stride=1), schedule=InOrder(per_step=1))
    (one,) = trainer.train(history, 1, epochs=2)
    runs = trainer.train(sliding(Trapezoid(full=3, decayed=len(graph), min_keep=1)), 1 + number % 3, epochs=2)
    assert_same(runs, one)


@dataclass(frozen=True, kw_only=True)
class Dealt(Placement):
    """Nodes dealt to chunks by id, chunks to ranks: the same chunks on any number of ranks."""

    name: ClassVar[str] = "dealt"

    gives: ClassVar[tuple[Fact, ...]] = ("whole sequences", "node chunks")

    def partition(self, request: PlacementRequest) -> Partition:
        chunk_owner, graph = np.arange(8) % request.num_ranks, request.graph
        return Partition.by_chunk(request.num_ranks, chunk_owner, np.arange(graph.num_nodes) % 8, len(graph))


@pytest.mark.parametrize(
    ("model", "schedule", "ranks"), [(m, (InOrder(), RandomSplit())[k % 2], 3 - k % 2) for k, m in enumerate(MODELS)]
)
def test_ranks_with_the_same_retention_order_train_as_one_does(
    graph: DynamicGraph, model: str, schedule: Schedule, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of chunks is the same on any number of ranks here; in a run ranks take turns."""
    monkeypatch.setattr(
        engine_sliding, "sample_retention_order", lambda ranks, seed: np.random.default_rng(seed).permutation(8)
    )
    trainer = Trainer(graph, model, "regression")
    trainer.same_head(monkeypatch)
    plan = replace(sliding(Trapezoid(full=1, decayed=3, min_keep=0.3)), placement=Dealt(), schedule=schedule)
    (one,) = trainer.train(plan, 1, epochs=2)
    assert_same(trainer.train(plan, ranks, epochs=2), one)


@pytest.mark.parametrize("model", ["mpnn-lstm", "evolvegcn-h"])
def test_rows_in_flight_change_nothing(graph: DynamicGraph, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(graph, model, "regression")
    trainer.same_head(monkeypatch)
    plan = sliding(Trapezoid(full=1, decayed=3, min_keep=0.3))
    flying = [Overlapped(inner=Halo(), overlap=overlap) for overlap in (True, False)]
    plans = [replace(plan, exchange=Exchange(structure=each, time=NoTimeExchange())) for each in flying]
    halo, overlapped, waiting = (trainer.train(each, 2, epochs=2)[0] for each in (plan, *plans))
    assert_same([overlapped], halo)
    for part in ("model", "head"):
        found, wanted = (getattr(each, part).state_dict() for each in (overlapped, waiting))
        assert same_tensors(found, wanted)


@pytest.mark.parametrize("task", ["classification", "link-prediction"])
def test_other_tasks_train_on_truncated_windows(
    graph: DynamicGraph, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        engine_sliding, "sample_retention_order", lambda ranks, seed: np.random.default_rng(seed).permutation(8)
    )
    trainer = Trainer(graph, "tgcn", task)
    trainer.same_head(monkeypatch)
    plan = replace(sliding(Trapezoid(full=2, decayed=2, min_keep=0.3)), placement=Dealt())
    (one,) = trainer.train(plan, 1, epochs=2)
    assert_same(trainer.train(plan, 2, epochs=2), one)


@pytest.mark.parametrize("model", ["mpnn-lstm", "evolvegcn-o"])
def test_a_stopped_run_resumes_to_the_same_weights(tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """States at the point where an epoch begins come from the one before: a checkpoint has them."""
    monkeypatch.setattr(store, "SAVE_EVERY_S", 0.0)
    plan = replace(sliding(Trapezoid(full=1, decayed=3, min_keep=0.3)), schedule=RandomSplit())
    given: dict[str, Any] = {"task": "regression", "epochs": 3, "threads": 1, "plan": plan, "patience": 0}
    whole = strobe.train(small_graph(), model, **given, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        strobe.train(small_graph(), model, **given, out=tmp_path / "run", progress=CtrlC(3, 3))
    again = strobe.train(small_graph(), None, out=tmp_path / "run", resume=True)
    assert again.history[-1]["epoch"] == 3
    assert same_tensors(again.model.state_dict(), whole.model.state_dict())


def test_an_epoch_has_every_training_cell_as_target_once(graph: DynamicGraph) -> None:
    decay = Trapezoid(full=1, decayed=2, min_keep=0.25).decay
    plan = replace(sliding(Trapezoid(full=1, decayed=2, min_keep=0.25)), placement=Dealt(), schedule=RandomSplit())
    given = TrainRequest(graph, "tgcn", "regression", None, None, {"threads": 1}, None, plan)
    job = resolve(given, None, Progress())
    made = source_of(job, SlidingWindowSource)
    kept, train = decay.num_chunks_by_age(8), job.problem.split.train
    for epoch in range(3):
        order, target_times = made.node_order(epoch), []
        stretches = plan.schedule.time_order(train, epoch, job.settings.seed)
        starts = {t: stretch.start for stretch in stretches for t in stretch}
        for step in made.epoch(epoch, Lockstep(job.comm)):
            ((segment,),) = step.values()
            assert segment.target_times is not None
            (t,) = segment.target_times
            target_times.append(t)
            assert list(segment.times) == list(range(max(starts[t], t - 2), t + 1))
            sizes = [int((order.place[graph[s].nodes] < kept[t - s]).sum()) for s in segment.times]
            assert np.diff(segment.data.cell_ptr).tolist() == sizes
        assert sorted(target_times) == list(train)
        assert [t for stretch in stretches for t in stretch] == target_times


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_cell_indices_of_examples_ascend_in_any_node_order(graph: DynamicGraph, task: str) -> None:
    """Kernels read rows that ascend; each has the label of its own node."""
    plan = replace(sliding(Trapezoid(full=1, decayed=2, min_keep=0.25)), placement=Dealt())
    job = resolve(TrainRequest(graph, "tgcn", task, None, None, {"threads": 1}, None, plan), None, Progress())
    made = source_of(job, SlidingWindowSource)
    order = made.node_order(0)
    for step in made.epoch(0, Lockstep(job.comm)):
        ((segment,),) = step.values()
        assert segment.target_times is not None
        assert segment.examples_fn is not None
        (t,) = segment.target_times
        local, whole = segment.examples_fn(), job.problem.examples(t)
        assert local is not None
        assert whole is not None
        assert local.examples.cell_index is not None
        (rows,) = local.examples.cell_index
        assert bool((rows.diff() > 0).all())
        assert len(local) == len(whole)
        places = rows.cpu().numpy() - segment.data.cell_ptr[-2]
        by_slot = graph[t].nodes[np.argsort(order.slot[graph[t].nodes])]
        at = np.arange(len(whole)) if whole.cell_index is None else whole.cell_index[0].numpy()
        wanted = dict(zip(graph[t].nodes[at].tolist(), whole.labels.tolist(), strict=True))
        assert [wanted[node] for node in by_slot[places].tolist()] == local.examples.labels.tolist()


def test_a_rank_without_nodes_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = strobe.from_edges([np.array([[0, 1], [1, 0]])] * 8, num_nodes=2)
    trainer = Trainer(graph, "mpnn-lstm", "regression")
    trainer.same_head(monkeypatch)
    plan = sliding(Trapezoid(full=1, decayed=2, min_keep=1))
    (one,) = trainer.train(plan, 1, epochs=2)
    assert_same(trainer.train(plan, 3, epochs=2), one)


def test_conflicts_name_the_missing_fact() -> None:
    plan = Plan(batching=Trapezoid())
    text = " ".join(str(conflict) for conflict in plan.conflicts(1))
    assert "node chunks" in text
    assert "metis:chunks=64" in text
    stale = replace(preset("flare"), exchange=Exchange(structure=Stale(), time=NoTimeExchange()))
    assert "fresh rows" in " ".join(str(conflict) for conflict in stale.conflicts(2))
    split = replace(preset("metis"), schedule=RandomSplit())
    assert "sliding windows" in " ".join(str(conflict) for conflict in split.conflicts(1))
    assert not preset("flare").conflicts(1)
    assert not preset("flare").conflicts(4)
