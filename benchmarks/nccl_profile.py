"""What a step of a relay on GPUs copies, waits for and computes, from a profile of torch.

A rank profiles the only step of its second epoch. Counted in it are copies between host and device above 4 KiB, calls
in which the host waits for the device, and kernels of the recurrent stage. Seconds of compute kernels are measured with
ranks that are threads of one process: a GPU that two processes share gives each a slice of time, and the durations of
kernels contain the slices of the other process, also those of NCCL's kernels that wait for a peer. The kernels are the
same.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from strobe.comm import Comm
from strobe.engine.inputs.resolve import TrainRequest
from strobe.engine.launch.processes import OutputConfig
from strobe.engine.progress import Progress
from strobe.engine.train import train_on_rank
from strobe.graph.synthetic import Social
from strobe.presets import preset
from tests.support.ranks import as_threads

STEP = "profiled step"
SMALL_BYTES = 4096
WAITS = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize")
RECURRENT = ("gru_", "lstm_")
"""Beginnings of the names of kernels of the recurrent stage, which a step of a relay must launch."""

MODELS = ("tgcn", "mpnn-lstm")
_ACTIVITIES = [ProfilerActivity.CPU, ProfilerActivity.CUDA]

Event = Mapping[str, Any]


class StepProfile(Progress):
    """Profiles the step after the first epoch, and counts its events.

    Ranks that are threads meet at a ``gate`` before and after the step; one of them profiles the process.
    """

    def __init__(self, gate: Barrier | None = None, *, records: bool = True) -> None:
        self.counts: dict[str, float] = {}
        self._gate, self._records = gate, records
        self._profile = profile(activities=_ACTIVITIES)
        self._step = record_function(STEP)

    def epoch(self, line: dict[str, Any]) -> None:
        if line["epoch"] == 1:
            self._meet()
            if self._records:
                self._profile.start()
                self._step.__enter__()
            self._meet()

    def step(self, epoch: int, step: int) -> None:
        if epoch == 2:
            self._meet()
            if self._records:
                self._stop()
            self._meet()

    def _meet(self) -> None:
        if self._gate is not None:
            torch.cuda.synchronize()
            self._gate.wait()

    def _stop(self) -> None:
        self._step.__exit__(None, None, None)
        self._profile.stop()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            self._profile.export_chrome_trace(str(path))
            self.counts = count_events(json.loads(path.read_text())["traceEvents"])


def count_events(events: Iterable[Event]) -> dict[str, float]:
    """Count the copies, waits and kernel seconds of the profiled step in a trace."""
    events = [event for event in events if "dur" in event]
    (step,) = (event for event in events if event["name"] == STEP and event.get("cat") == "user_annotation")
    start, end = step["ts"], step["ts"] + step["dur"]
    inside = [event for event in events if start <= event["ts"] <= end]
    copies = [event["args"]["bytes"] for event in inside if event.get("cat") == "gpu_memcpy" and _crosses(event)]
    kernels = [event for event in inside if event.get("cat") == "kernel" and not event["name"].startswith("nccl")]
    return {
        "host_copies": sum(num_bytes > SMALL_BYTES for num_bytes in copies),
        "host_waits": sum(event.get("cat") == "cuda_runtime" and event["name"] in WAITS for event in inside),
        "kernel_s": sum(event["dur"] for event in kernels) / 1e6,
        "recurrent_kernels": sum(event["name"].startswith(RECURRENT) for event in kernels),
    }


def _crosses(event: Event) -> bool:
    """Whether a copy is between host and device."""
    return "HtoD" in event["name"] or "DtoH" in event["name"]


def profile_on_rank(
    model: str, nodes: int, comm: Comm, _: Any = None, progress: StepProfile | None = None
) -> dict[str, float]:
    """Train three epochs with a relay, and profile the second."""
    graph = Social(nodes=nodes, snapshots=8, edges=2 * nodes).write()
    settings = {"epochs": 3, "evaluate_every": 3, "device": "cuda", "precision": "tf32", "offload": "never"}
    given = TrainRequest(graph, model, "regression", {"hidden": 32}, None, settings, None, preset("relay"))
    progress = StepProfile() if progress is None else progress
    train_on_rank(given, OutputConfig(), progress, comm)
    torch.cuda.synchronize()
    return progress.counts


def kernel_seconds(model: str, nodes: int, num_ranks: int) -> float:
    """Seconds of the compute kernels of a step of ranks that are threads of this process, all together."""
    gate = Barrier(num_ranks)
    with profile(activities=_ACTIVITIES):
        pass  # the main thread must start it first

    def work(comm: Comm) -> dict[str, float]:
        return profile_on_rank(model, nodes, comm, progress=StepProfile(gate, records=comm.rank == 0))

    return as_threads(work, num_ranks)[0]["kernel_s"]


@dataclass(frozen=True)
class ModelProfile:
    """Counts of a step of each of two ranks over NCCL, and seconds of compute kernels of one rank and of two."""

    ranks: list[dict[str, float]]
    kernel_s: tuple[float, float]


def figures(by_model: Mapping[str, ModelProfile]) -> dict[str, float]:
    """The worst of all models."""
    ranks = [each for profiled in by_model.values() for each in profiled.ranks]
    overhead = [two / one for one, two in (profiled.kernel_s for profiled in by_model.values())]
    return {
        "host_copies_per_step": max(each["host_copies"] for each in ranks),
        "host_waits_per_step": max(each["host_waits"] for each in ranks),
        "relay_device_overhead": max(overhead),
    }
