"""What a run of four epochs takes on a GPU, from the call to the last score, and where its seconds go.

A social network of 1M nodes, 24 snapshots, 17.6M cells and 96M arcs, windows of 8 snapshots, TF32. Every run is a
process of its own; imports and the GPU's context are timed beside, the graph is open before the clock starts. *cold*:
neither compiled kernels nor anything in Strobe's cache; *first*: kernels compiled before, nothing in Strobe's cache;
*again*: the same command once more. ``--prepare DIR`` makes the graph and compiles the kernels in a folder, and
``--prepared DIR`` measures with them, where both at once would take too long.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.record import Record, child, option_parser, table, tell

MODULE = "benchmarks.startup_gpu"
MODELS = ("tgcn", "evolvegcn-o", "mpnn-lstm", "gat-lstm", "wd-gcn", "dysat", "sage", "dcrnn")
SETTINGS: dict[str, Any] = {"epochs": 4, "window": 8, "precision": "tf32", "device": "cuda"}


def prepare(folder: Path, *, quick: bool) -> dict[str, Any]:
    """Make the graph in a folder and run all models once, which compiles their kernels; samples of these runs."""
    child(MODULE, "make", folder / "graph", 50_000 if quick else 1_000_000)
    return {f"{model} cold": _run(folder, model, "cold") for model in _models(quick=quick)}


def measure(*, quick: bool, prepared: Path | None = None) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the figures ``gpu_run_s``, ``gpu_run_cached_s`` and ``gpu_run_worst_s``, and raw samples."""
    samples: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if prepared is None else prepared
        if prepared is None:
            samples |= prepare(folder, quick=quick)
        for model in _models(quick=quick):
            samples[f"{model} first"] = _run(folder, model, model)
        samples["tgcn again"] = _run(folder, "tgcn", "tgcn")
    first = {name.split()[0]: each["run_s"] for name, each in samples.items() if name.endswith("first")}
    figures = {"gpu_run_s": first.pop("tgcn"), "gpu_run_cached_s": samples["tgcn again"]["run_s"]}
    figures["gpu_run_worst_s"] = max(first.values())
    figures["gpu_first_epoch_worst"] = max(
        each["epochs"][0] / statistics.median(each["epochs"][1:])
        for name, each in samples.items()
        if not name.endswith("cold")
    )
    return figures, samples


def _models(*, quick: bool) -> tuple[str, ...]:
    return MODELS[:2] if quick else MODELS


def _run(folder: Path, model: str, cache: str) -> dict[str, Any]:
    """Train once with a folder for Strobe's cache, and the one of all runs for compiled kernels."""
    os.environ["XDG_CACHE_HOME"], os.environ["TRITON_CACHE_DIR"] = str(folder / cache), str(folder / "triton")
    found = child(MODULE, "run", folder / "graph", model)
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


def main() -> None:
    """Prepare, or measure and print the figures."""
    parser = option_parser(__doc__)
    parser.add_argument("--prepare", type=Path, metavar="DIR")
    parser.add_argument("--prepared", type=Path, metavar="DIR")
    chosen = parser.parse_args()
    if chosen.child:
        what, path, argument = chosen.child
        return make(Path(path), int(argument)) if what == "make" else run(Path(path), argument)
    if chosen.prepare is not None:
        chosen.prepare.mkdir(parents=True, exist_ok=True)
        prepare(chosen.prepare, quick=chosen.quick)
        return None
    record = Record("startup_gpu", chosen.quick)
    record.figures, record.samples = measure(quick=chosen.quick, prepared=chosen.prepared)
    table(["figure", "value"], [[name, f"{value:.2f}"] for name, value in record.figures.items()])
    record.write(chosen.json)
    return None


if __name__ == "__main__":
    main()
