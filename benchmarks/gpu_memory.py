"""How large a graph trains on one GPU, does it take as much of its memory as was predicted, and what does waiting cost?

*peaks*: models with all windows on the GPU and with two at a time, beside the prediction. *bitcoin*: a graph of the
shape of soc-bitcoin, 24.6M nodes in 90 snapshots, with a window of 8. *largest*: the largest graph that is predicted to
fit, all of it on the GPU.

Every graph is made once, in the folder for temporary files (TMPDIR), up to 10 GB of it. Every case is a process of its
own, so that peaks are its own; it is kept as soon as it is done, and one that fails is listed under ``missing``.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import torch

import strobe
from benchmarks.record import Record, child, option_parser, table, tell
from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.machine import free_bytes
from strobe.engine.progress import Progress
from strobe.engine.records.run_directory import read_lines
from strobe.graph import Degrees, DynamicGraph
from strobe.graph.build import Edges, GraphBuilder
from strobe.graph.disk.directory import DiskSink
from strobe.planner.memory import predict_peak_memory

MODELS = ("tgcn", "mpnn-lstm", "gat-lstm", "evolvegcn-o", "dysat")
QUICK_MODELS = ("tgcn", "evolvegcn-o")
PARTS = ("peaks", "bitcoin", "largest")
WINDOW = 8
GIB = 2**30
Shape = tuple[int, int, int]
SHAPES: dict[str, Shape] = {
    "peaks": (2_300_000, 3_750_000, 24),  # two whole windows to train on: both are on the GPU where others wait
    "bitcoin": (24_600_000, 1_360_000, 90),
    "largest": (1_000_000, 100_000, 13),  # its proportions
}
QUICK: dict[str, Shape] = {
    "peaks": (50_000, 80_000, 24),
    "bitcoin": (100_000, 6_000, 90),
    "largest": (200_000, 20_000, 13),
}
EPOCHS = {"peaks": 3, "bitcoin": 2, "largest": 2}
_FILLED = 0.97
"""Of what is free: the largest graph leaves a little."""


class Clock(Progress):
    """Seconds of each stage of a run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._what, self._since = "opening", perf_counter()

    def stage(self, what: str, done: int, total: int | None) -> None:
        self.now(what)

    def begin(self, info: dict[str, Any]) -> None:
        self.now("epochs")

    def now(self, what: str) -> None:
        """What was done up to now ends, another thing begins."""
        moment = perf_counter()
        self.seconds[self._what] = self.seconds.get(self._what, 0.0) + moment - self._since
        self._what, self._since = what, moment


def made(path: Path, nodes: int, arcs: int, snapshots: int) -> DynamicGraph:
    """All nodes in all snapshots, arcs drawn in each, some sources much more often than others; straight to disk."""
    with DiskSink(path) as sink:
        builder = GraphBuilder(sink, num_nodes=nodes)
        for t in range(snapshots):
            builder.add(_drawn(nodes, arcs, np.random.default_rng([0, t])))
        return builder.finish(features=Degrees(log=True))


def _drawn(nodes: int, arcs: int, draw: np.random.Generator) -> Edges:
    often = draw.random(arcs)
    for _ in range(2):  # the fourth power
        often *= often
    often *= nodes
    return Edges(often.astype(np.int32), draw.integers(0, nodes, arcs, np.int32))


_OFFLOAD = {"auto": "auto", "device": "never", "host": "always"}
"""Values of ``Settings.offload`` by where windows are between steps, as records name it."""


def trained(folder: Path, model: str, keep: str, device: str, epochs: int) -> dict[str, Any]:
    """A run, its predicted memory, what it came to, and where its seconds went."""
    given: dict[str, Any] = {"window": WINDOW, "device": device, "precision": "tf32", "epochs": epochs}
    given["offload"] = _OFFLOAD[keep]
    clock = Clock()
    graph = strobe.open(folder)
    estimate = None
    if keep != "auto":  # else the run asks itself
        clock.now("predicting")
        estimate = predict_peak_memory(
            resolve(TrainRequest(graph, model, "regression", None, None, given), None, Progress())
        )
        clock.now("choosing")
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    with TemporaryDirectory() as out:
        run = strobe.train(graph, model, "regression", out=out, overwrite=True, progress=clock, **given)
        prepared = next(line for line in read_lines(Path(out)) if line.get("event") == "prepared")
    clock.now("the end")
    streamed = run.job.partitioned_graph.offloader
    if estimate is not None:
        prepared["predicted_device_bytes"] = estimate.resident if streamed is None else estimate.offloaded
    assert run.memory is not None
    return {
        "nodes": graph.num_nodes,
        "arcs": graph.num_arcs,
        "snapshots": len(graph),
        "predicted_bytes": prepared["predicted_device_bytes"],
        "device_bytes": run.memory.get("device_bytes", run.memory["memory_bytes"]),
        "host_bytes": 0 if streamed is None else streamed.host_bytes,
        "streamed": streamed is not None,
        "recompute": run.settings.recompute,
        "epoch_s": min(line["train_s"] for line in run.history),
        "first_epoch_s": run.history[0]["train_s"],
        "prepare_s": prepared["prepare_s"],
        "run_s": run.seconds,
        "seconds": clock.seconds,
        "loss": run.history[-1]["loss"],
    }


def room(folder: Path, device: str) -> dict[str, Any]:
    """How many nodes a graph of these proportions may have to fit."""
    graph = strobe.open(folder)
    given: dict[str, Any] = {"window": WINDOW, "device": device, "precision": "tf32"}
    estimate = predict_peak_memory(
        resolve(TrainRequest(graph, "tgcn", "regression", None, None, given), None, Progress())
    )
    return {"nodes": int(graph.num_nodes * _FILLED * free_bytes(torch.device(device)) / estimate.resident)}


class Benchmark:
    """All cases of some parts, one after the other; the record is written after each."""

    def __init__(self, record: Record, chosen: argparse.Namespace, folder: Path) -> None:
        self.record, self.chosen, self.folder = record, chosen, folder
        self.shapes = QUICK if chosen.quick else SHAPES

    def run(self, parts: list[str]) -> None:
        """Measures parts; what was known of their cases is forgotten."""
        for part in parts:
            for known in (self.record.samples, self.record.missing):
                for name in [name for name in known if name.split()[0] == part]:
                    del known[name]
            shape = self.shapes[part]
            if part == "largest":
                found = self._with_graph("largest room", shape, "room")
                if found is None:
                    continue
                shape = (found["nodes"], found["nodes"] * shape[1] // shape[0], shape[2])
            self._with_graph(part, shape, part)

    def _with_graph(self, name: str, shape: Shape, part: str) -> dict[str, Any] | None:
        """Makes a graph, runs the cases that need it; what the last of them found."""
        path, began, found = self.folder / part, perf_counter(), None
        try:
            graph = made(path, *shape)
        except (OSError, MemoryError, strobe.StrobeError) as error:
            self._lacks(name, f"the graph could not be made: {error}")
            return None
        seconds, size = perf_counter() - began, graph.storage.nbytes
        self.record.samples[f"{name} graph"] = {"made_s": seconds, "bytes": size, "shape": shape}
        print(f"{name} graph: {size / GIB:.2f} GiB made in {seconds:.1f} s", flush=True)
        for model, keep in self._ways(part):
            case = f"{name} {model} {keep}" if part == "peaks" else name
            found = self._measured(case, part, path, model, keep)
        del graph
        shutil.rmtree(path)
        return found

    def _ways(self, part: str) -> list[tuple[str, str]]:
        """Models, and where their windows are kept."""
        if part == "peaks":
            models = QUICK_MODELS if self.chosen.quick else MODELS
            return [(model, keep) for model in models for keep in ("device", "host")]
        return [("tgcn", "auto" if part == "bitcoin" else "device")]

    def _measured(self, case: str, part: str, path: Path, model: str, keep: str) -> dict[str, Any] | None:
        epochs = EPOCHS.get(part, 0)
        try:
            found = child("benchmarks.gpu_memory", part, path, model, keep, self.chosen.device, epochs)
        except subprocess.CalledProcessError as error:
            self._lacks(case, f"its process ended with status {error.returncode}")
            return None
        if "failed" in found:
            self._lacks(case, found["failed"])
            return None
        self.record.samples[case] = found
        print(f"{case}: {_describe(found)}", flush=True)
        self.keep()
        return found

    def _lacks(self, case: str, reason: str) -> None:
        self.record.missing[case] = reason
        print(f"missing {case}: {reason}", flush=True)
        self.keep()

    def keep(self) -> None:
        """Writes what is known by now."""
        figures(self.record)
        self.record.write(self.chosen.json)


def _describe(found: dict[str, Any]) -> str:
    if "device_bytes" not in found:
        return f"{found['nodes']:,} nodes"
    stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in found["seconds"].items())
    off = found["predicted_bytes"] and f", predicted {found['predicted_bytes'] / found['device_bytes'] - 1:+.1%}"
    return f"{found['device_bytes'] / GIB:.2f} GiB{off or ''}, epoch {found['epoch_s']:.2f} s ({stages})"


def case(part: str, path: Path, model: str, keep: str, device: str, epochs: int) -> dict[str, Any]:
    """One case, in the process that was made for it; or why it failed."""
    try:
        return room(path, device) if part == "room" else trained(path, model, keep, device, epochs)
    except (RuntimeError, MemoryError, strobe.StrobeError) as error:
        return {"failed": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"}


def figures(record: Record) -> None:
    """Figures of all cases that are there."""
    runs = {name: each for name, each in record.samples.items() if isinstance(each, dict) and "device_bytes" in each}
    record.figures.clear()
    errors = [
        abs(each["predicted_bytes"] / each["device_bytes"] - 1) for each in runs.values() if each["predicted_bytes"]
    ]
    if errors:
        record.figures["peak_prediction_error"] = max(errors)
    both = [[runs.get(f"peaks {model} {keep}") for keep in ("host", "device")] for model in MODELS]
    waits = [host["epoch_s"] / device["epoch_s"] for host, device in both if host is not None and device is not None]
    if waits:
        record.figures["waiting_costs_worst"] = max(waits)
    if found := runs.get("bitcoin"):
        record.figures |= {"bitcoin_epoch_s": found["epoch_s"], "bitcoin_gib": found["device_bytes"] / GIB}
    if found := runs.get("largest"):
        record.figures |= {"largest_nodes": found["nodes"], "largest_gib": found["device_bytes"] / GIB}


def main() -> None:
    """Runs all cases and prints a table."""
    parser = option_parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, help="some parts; others stay as they were in the record")
    parser.add_argument("--device", default="cuda", help="cpu shows that all cases run; its memory is the process's")
    chosen = parser.parse_args()
    if chosen.child:
        part, path, model, keep, device, epochs = chosen.child
        tell(**case(part, Path(path), model, keep, device, int(epochs)))
        return
    if chosen.device == "cuda" and not torch.cuda.is_available():
        print("this benchmark needs a GPU; torch sees none here")
        return
    record = Record("gpu_memory", chosen.quick)
    if chosen.only:
        record.recall(chosen.json)
    record.samples["gpu"] = torch.cuda.get_device_name() if chosen.device == "cuda" else chosen.device
    with TemporaryDirectory() as folder:
        Benchmark(record, chosen, Path(folder)).run(chosen.only or list(PARTS))
    table(["figure", "value"], [[name, f"{value:.3g}"] for name, value in record.figures.items()])
    for name, reason in record.missing.items():
        print(f"missing {name}: {reason}")


if __name__ == "__main__":
    main()
