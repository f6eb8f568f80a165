"""Everything on a GPU: the same numbers as on the CPU, and whole runs. Skipped where there is none."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import strobe
from strobe.api import SERVICES
from strobe.batching import Trapezoid
from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.progress import Progress
from strobe.engine.train import choose_residency
from strobe.exchange import Exchange, Halo, NoTimeExchange
from strobe.graph.synthetic import Social
from strobe.models import MODELS, make_model
from strobe.placement import Chunks
from strobe.plan import Plan
from strobe.presets import PRESETS, preset
from strobe.schedule import BinPacking, RandomSplit
from strobe.tasks import TASKS
from strobe.view import Carry, View, WindowData
from tests.engine.sources.test_sliding import Dealt
from tests.support.runs import same_tensors

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch can use")

GRAPH = Social(nodes=120, snapshots=9, edges=400, away=0.2, labels=True, communities=4).write()


def _passes(name: str, device: str) -> list[torch.Tensor]:
    """Outputs of two windows and the gradients of all parameters, in double precision."""
    torch.manual_seed(0)
    model = make_model(name, 2, hidden=8).double().to(device)
    carry: Carry | None = None
    outputs = []
    for part in (GRAPH[:4], GRAPH[4:]):
        view = View(WindowData(part, dtype=torch.float64, device=device), carry)
        outputs.append(model(view))
        carry = view.carry
    torch.cat(outputs).square().mean().backward()
    return [*outputs, *(weight.grad for weight in model.parameters() if weight.grad is not None)]


@pytest.mark.parametrize("name", sorted(MODELS))
def test_models_give_the_same_numbers_on_a_gpu(name: str) -> None:
    for gpu, cpu in zip(_passes(name, "cuda"), _passes(name, "cpu"), strict=True):
        torch.testing.assert_close(gpu.cpu(), cpu, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("task", sorted(TASKS))
@pytest.mark.parametrize("options", [{}, {"window": 3}, {"recompute": 2}])
def test_runs_train_and_resume_on_a_gpu(task: str, options: dict[str, Any], tmp_path: Path) -> None:
    graph = tmp_path / "graph"
    GRAPH.save(graph)
    run = strobe.train(graph, "tgcn", task, epochs=3, device="cuda", out=tmp_path / "run", **options)
    assert len(run.history) == 3
    again = strobe.train(None, None, out=tmp_path / "run", resume=True, epochs=5)
    assert len(again.history) == 5
    on_cpu = strobe.train(graph, "tgcn", task, epochs=5, device="cpu", **options)
    assert again.test[run.problem.metric] == pytest.approx(on_cpu.test[run.problem.metric], rel=0.05)


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("recompute", [None, 1])
def test_windows_that_wait_in_the_hosts_memory_change_nothing(name: str, recompute: int | None) -> None:
    given: dict[str, Any] = {"epochs": 4, "window": 2, "recompute": recompute, "device": "cuda"}
    stay, wait = (strobe.train(GRAPH, name, "regression", offload=offload, **given) for offload in ("never", "always"))
    assert [line["loss"] for line in stay.history] == pytest.approx([line["loss"] for line in wait.history], rel=1e-6)
    assert wait.job.partitioned_graph.offloader is not None
    assert stay.test == pytest.approx(wait.test, rel=1e-4)


@pytest.mark.parametrize("name", ["tgcn", "mpnn-lstm", "gat-lstm", "evolvegcn-o", "dysat"])
def test_peak_gpu_memory_is_about_as_predicted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Social(nodes=400_000, snapshots=12, edges=800_000, communities=4).write()
    monkeypatch.setattr("strobe.planner.memory.upper_bound_bytes", lambda job: np.full(1, np.inf))
    given: dict[str, Any] = {"epochs": 2, "window": 4, "device": "cuda", "offload": "auto"}
    gc.collect()
    there = torch.cuda.memory_allocated()
    request = TrainRequest(graph, name, "regression", None, None, given, services=SERVICES)
    _, kept = choose_residency(resolve(request, None, Progress()))
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    run = strobe.train(graph, name, "regression", **given | {"offload": "never"})
    assert run.memory is not None
    assert kept.predicted_device_bytes == pytest.approx(run.memory["device_bytes"] - there, rel=0.1)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_same_bits_in_every_run(name: str) -> None:
    given: dict[str, Any] = {"epochs": 3, "device": "cuda", "deterministic": True}
    try:
        first, second = (strobe.train(GRAPH, name, "regression", **given) for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(False)
    assert same_tensors(first.model.state_dict(), second.model.state_dict())


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("name", PRESETS)
def test_ranks_that_share_a_gpu_train_as_ranks_on_cpus(name: str, precision: str, tmp_path: Path) -> None:
    """Real processes: what they send each other goes by the host's memory. In float32 by kernels."""
    plan = preset(name)
    if "metis" in str(plan.placement):
        pytest.importorskip("pymetis")
    # Not by the clock: both runs must get the same batches and the same owners.
    if isinstance(plan.schedule, BinPacking):
        plan = replace(plan, schedule=replace(plan.schedule, times="counted"))
    if isinstance(plan.placement, Chunks):
        plan = replace(plan, placement=replace(plan.placement, loads="counted"))
    model = sorted(MODELS)[list(PRESETS).index(name) % len(MODELS)]
    given: dict[str, Any] = {"epochs": 3, "precision": precision, "optimizer": "sgd", "lr": 0.05, "ranks": 2}
    GRAPH.save(tmp_path / "graph")
    runs = [
        strobe.train(tmp_path / "graph", model, "regression", plan=plan, device=device, **given)
        for device in ("cuda", "cpu")
    ]
    on_gpu, on_cpu = ([line["loss"] for line in run.history] for run in runs)
    near = {"float64": 1e-7, "float32": 1e-4}[precision] if plan.schedule.lockstep else 0.5  # else by the clock, too
    assert on_gpu == pytest.approx(on_cpu, rel=near)
    assert runs[0].test == pytest.approx(runs[1].test, rel=10 * near)


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("degrees", ["subgraph", "snapshot"])
def test_sliding_windows_train_on_a_gpu_as_on_the_cpu(name: str, degrees: Any) -> None:
    batching = Trapezoid(full=1, decayed=3, min_keep=0.3, degrees=degrees)
    exchange = Exchange(structure=Halo(), time=NoTimeExchange())
    plan = Plan(placement=Dealt(), batching=batching, exchange=exchange, schedule=RandomSplit())
    given: dict[str, Any] = {"epochs": 3, "precision": "float64", "optimizer": "sgd", "lr": 0.05, "plan": plan}
    runs = [strobe.train(GRAPH, name, "regression", device=device, **given) for device in ("cuda", "cpu")]
    on_gpu, on_cpu = ([line["loss"] for line in run.history] for run in runs)
    assert on_gpu == pytest.approx(on_cpu, rel=1e-7)
    assert runs[0].test == pytest.approx(runs[1].test, rel=1e-6)
