"""What does a link task cost around its epochs, and how fast are these, with all defaults of T-GCN?

Three graphs of ``strobe.graph.synthetic.Social``: 10,000 snapshots of 30 edges, where the CPU seconds of an epoch,
validation included, are divided by the snapshots; 20,000 nodes, whose epochs are compared with those of the commit
before start-up was looked at, both in turn; and a million nodes. *Around* three epochs is all that ``strobe.train``
does but the passes over the training snapshots: binding the task, scoring the initial weights, validation, test,
baselines, calibration, saving. Every run is a process of its own.
"""

from __future__ import annotations

import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from benchmarks.record import Record, memory_bytes, options, table
from benchmarks.startup_static import BEFORE, before, environment, run_in_turn

_ROOT = Path(__file__).resolve().parent.parent
EPOCHS = 3
TINY = {"nodes": 50, "snapshots": 10_000, "edges": 30}
SMALL = {"nodes": 20_000, "snapshots": 8, "edges": 60_000}
LARGE = {"nodes": 1_000_000, "snapshots": 8, "edges": 3_000_000}
LARGE_BYTES = 22 << 30
"""Memory of the machine from which the large graph is tried: scoring its 63M pairs of a snapshot takes 18 GB."""

Result = dict[str, Any]


def measure(quick: bool) -> tuple[dict[str, float], dict[str, Any]]:
    """Return ``link_snapshot_ms``, ``link_around_epochs``, ``link_epoch_speedup`` (absent without the history, and if
    quick), ``link_around_epochs_1m`` (absent if quick) and raw samples, with the peak memory of each run."""
    figures: dict[str, float] = {}
    snapshots = 300 if quick else TINY["snapshots"]
    samples: dict[str, Any] = {
        "tiny": run("link-prediction", TINY | {"snapshots": snapshots}, calibrate=not quick),
        "small": run("link-prediction", SMALL | ({"nodes": 5_000, "edges": 15_000} if quick else {})),
    }
    epochs_ms = [1e3 * each / snapshots for each in samples["tiny"]["epoch_cpu_s"]]
    figures["link_snapshot_ms"] = statistics.median(epochs_ms[1:])
    figures["link_around_epochs"] = around(samples["small"])
    if quick:
        return figures, samples
    samples["ranking"] = run("link-ranking", SMALL)
    if memory_bytes() >= LARGE_BYTES:
        samples["large"] = run("link-prediction", LARGE)
        figures["link_around_epochs_1m"] = around(samples["large"])
    with before() as folder:
        if folder is not None:
            shutil.rmtree(folder / "benchmarks")  # children import those of this file
            samples["epochs_s"] = seconds = epochs_in_turn({"before": folder, "now": _ROOT}, 6)
            ratios = [then / now for then, now in zip(seconds["before"], seconds["now"], strict=True)]
            samples["epoch_speedups"] = ratios
            figures["link_epoch_speedup"] = statistics.median(ratios)
    return figures, samples


def reason(figure: str, quick: bool) -> str:
    """Why a figure was not measured."""
    if quick:
        return "only in a full run"
    if figure == "link_around_epochs_1m":
        return f"needs {LARGE_BYTES >> 30} GiB of memory, of which there are {memory_bytes() >> 30}"
    return f"the history of git does not reach back to {BEFORE}"


def around(result: Result) -> float:
    """The time around the epochs, in epochs."""
    trained: list[float] = result["train_s"]
    return float((result["wall_s"] - sum(trained)) / statistics.median(trained))


def run(task: str, graph: dict[str, int], *, calibrate: bool = True) -> Result:
    """Train in a process of its own."""
    request = json.dumps({"task": task, "graph": graph, "epochs": EPOCHS, "calibrate": calibrate})
    done = subprocess.run(_command(request), cwd=_ROOT, env=environment(_ROOT), stdout=subprocess.PIPE, check=True)
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result


def epochs_in_turn(folders: dict[str, Path], epochs: int) -> dict[str, list[float]]:
    """Seconds of the training epochs of each commit, an epoch of one after an epoch of the other; without the first."""
    request = json.dumps({"task": "link-prediction", "graph": SMALL, "epochs": epochs + 1, "waits": True})
    return run_in_turn(folders, _command(request), epochs)


def _command(request: str) -> list[str]:
    return [sys.executable, str(Path(__file__).resolve()), "--child", request]


def train_child(request: dict[str, Any]) -> None:
    """Child: trains and prints a result; if it waits, the seconds of each epoch, and waits for a line after each."""
    from strobe import train
    from strobe.engine.progress import Progress
    from strobe.graph.synthetic import Social
    from strobe.tasks import make_task

    marks, epochs, waits = [0.0], request["epochs"], "waits" in request

    class Epochs(Progress):
        def begin(self, info: dict[str, Any]) -> None:
            marks[:] = [process_time()]

        def epoch(self, line: dict[str, Any]) -> None:
            marks.append(process_time())
            if waits:
                print(json.dumps(line["train_s"]), flush=True)
                sys.stdin.readline()

    graph, every = Social(**request["graph"]).write(), epochs if waits else 1
    task = request["task"] if waits else make_task(request["task"], calibrate=request["calibrate"])
    with tempfile.TemporaryDirectory() as folder:
        out = None if waits else Path(folder) / "run"
        began, cpu = perf_counter(), process_time()
        done = train(graph, "tgcn", task, epochs=epochs, patience=0, evaluate_every=every, progress=Epochs(), out=out)
    result = {
        "wall_s": perf_counter() - began,
        "cpu_s": process_time() - cpu,
        "train_s": [line["train_s"] for line in done.history],
        "evaluate_s": [line["evaluate_s"] for line in done.history],
        "epoch_cpu_s": [after - start for start, after in pairwise(marks)],
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(result), flush=True)


def main() -> None:
    """Prints the figures."""
    chosen = options(__doc__ or "")
    if chosen.child:
        return train_child(json.loads(chosen.child[0]))
    record = Record("startup_links", chosen.quick)
    record.figures, record.samples = measure(chosen.quick)
    for name in ("link_epoch_speedup", "link_around_epochs_1m"):
        if name not in record.figures:
            record.missing[name] = reason(name, chosen.quick)
    table(["figure", "value"], [[name, f"{value:.3f}"] for name, value in record.figures.items()])
    runs = {name: each for name, each in record.samples.items() if "peak_mb" in each}
    rows = [
        [name, f"{each['wall_s']:.2f}", f"{each['cpu_s']:.2f}", f"{each['peak_mb']:.0f}"] for name, each in runs.items()
    ]
    table(["run", "s", "CPU s", "peak MB"], rows)
    record.write(chosen.json)
    return None


if __name__ == "__main__":
    main()
