"""What a run of four epochs takes on a GPU, from the call to the last score, and where its seconds go.

A social network of 1M nodes, 24 snapshots, 17.6M cells and 96M arcs, windows of 8 snapshots, TF32. Every run is a
process of its own; imports and the GPU's context are timed beside, the graph is open before the clock starts. *cold*:
neither compiled kernels nor anything in Strobe's cache; *first*: kernels compiled before, nothing in Strobe's cache;
*again*: the same command once more.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.record import child, tell

MODULE = "benchmarks.startup_gpu"
MODELS = ("tgcn", "evolvegcn-o", "mpnn-lstm", "gat-lstm", "wd-gcn", "dysat", "sage", "dcrnn")
SETTINGS: dict[str, Any] = {"epochs": 4, "window": 8, "precision": "tf32", "device": "cuda"}


def measure(*, quick: bool) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the figures ``gpu_run_s``, ``gpu_run_cached_s`` and ``gpu_run_worst_s``, and raw samples."""
    samples: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        graph = Path(folder) / "graph"
        child(MODULE, "make", graph, 50_000 if quick else 1_000_000)
        os.environ["XDG_CACHE_HOME"], os.environ["TRITON_CACHE_DIR"] = f"{folder}/cold", f"{folder}/triton"
        samples["tgcn cold"] = _run(graph, "tgcn")
        for model in MODELS[:2] if quick else MODELS:
            if model != "tgcn":
                samples[f"{model} cold"] = _run(graph, model)
            os.environ["XDG_CACHE_HOME"] = f"{folder}/{model}"
            samples[f"{model} first"] = _run(graph, model)
            samples[f"{model} again"] = _run(graph, model)
    first = {name.split()[0]: each["run_s"] for name, each in samples.items() if name.endswith("first")}
    figures = {"gpu_run_s": first.pop("tgcn"), "gpu_run_cached_s": samples["tgcn again"]["run_s"]}
    figures["gpu_run_worst_s"] = max(first.values())
    figures["gpu_first_epoch_worst"] = max(
        each["epochs"][0] / statistics.median(each["epochs"][1:])
        for name, each in samples.items()
        if not name.endswith("cold")
    )
    return figures, samples


def _run(graph: Path, model: str) -> dict[str, Any]:
    found = child(MODULE, "run", graph, model)
    stages = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in found["stages"].items() if seconds > 0.02)
    epochs = " ".join(f"{seconds:.3f}" for seconds in found["epochs"])
    print(f"{model}: {found['run_s']:.2f} s ({stages}); epochs {epochs}; before {found['before_s']:.1f} s", flush=True)
    return found


def make(path: Path, nodes: int) -> None:
    """Child: generate the graph."""
    from strobe.graph.disk.directory import DiskSink
    from strobe.graph.synthetic import Social

    with DiskSink(path) as sink:
        graph = Social(nodes=nodes, snapshots=24, edges=2 * nodes).write(sink)
    tell(cells=graph.num_cells, arcs=graph.num_arcs)


def run(path: Path, model: str) -> None:
    """Child: train once, timed by stage."""
    began = perf_counter()
    import strobe
    from strobe.engine.progress import Progress
    from strobe.graph import open_graph

    import torch  # isort: skip

    torch.zeros(1, device=SETTINGS["device"])
    graph = open_graph(path)

    class Stages(Progress):
        """Seconds between what a run reports."""

        def __init__(self) -> None:
            self.seconds: dict[str, float] = {}
            self.now, self.since = "start", perf_counter()

        def stage(self, what: str, done: int, total: int | None) -> None:
            moment = perf_counter()
            self.seconds[self.now] = self.seconds.get(self.now, 0.0) + moment - self.since
            self.now, self.since = what, moment

        def begin(self, info: dict[str, Any]) -> None:
            self.stage("epochs", 0, None)

        def note(self, text: str) -> None:
            print("note:", text)

    before_s, stages, began = perf_counter() - began, Stages(), perf_counter()
    done = strobe.train(graph, model, "regression", progress=stages, **SETTINGS)
    run_s = perf_counter() - began
    stages.stage("end", 0, None)
    epochs = [line["train_s"] for line in done.history]
    evaluations = [line.get("evaluate_s") for line in done.history]
    tell(
        run_s=run_s,
        before_s=before_s,
        stages=stages.seconds,
        epochs=epochs,
        evaluations=evaluations,
        device_bytes=torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0,
    )


if __name__ == "__main__":
    import sys

    what, path, argument = sys.argv[2:]  # after --child
    make(Path(path), int(argument)) if what == "make" else run(Path(path), argument)
