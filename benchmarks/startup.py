"""What does a run cost around its training: before the first epoch, between epochs, and as a process?

``cpu_setup_epochs``: seconds inside ``strobe.train`` before the first epoch, in epochs (the median of later ones), of
T-GCN regression on 50,000 nodes, 20 snapshots and 150,000 edges each. ``tiny_cpu_vs_torch`` and
``tiny_mib_above_torch``: a run of two epochs on 129 nodes, beside a process that only imports torch.
``evaluate_share_small``: evaluation relative to training in an epoch of T-GCN on 20 nodes. Static graphs:
``benchmarks/startup_static.py``. GPUs: ``benchmarks/startup_gpu.py``. Processes that are compared run in turns.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from benchmarks import startup_gpu, startup_links, startup_static
from benchmarks.record import Record, child, options, table, tell

_MODULE = "benchmarks.startup"
NODES, SNAPSHOTS, EDGES = 50_000, 20, 150_000
TINY = "england_covid"
SMALL = "chickenpox"
SMALL_MODELS = ("tgcn", "gcn", "mpnn-lstm", "gconv-gru", "dcrnn", "evolvegcn-o", "dysat")
Measured = tuple[dict[str, float], dict[str, Any]]
"""Figures, and raw samples."""


class UnavailableError(Exception):
    """A figure cannot be measured here; the reason."""


def measure_setup(quick: bool) -> Measured:
    """Set-up in epochs, of a graph in memory; beside it of one on disk."""
    samples: dict[str, list[Any]] = {"setup_memory": [], "setup_disk": []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(2 if quick else 9):
            samples["setup_memory"].append(child(_MODULE, "setup", f"{folder}/graph", "" if number else "save", 7))
            if number or not quick:
                samples["setup_disk"].append(child(_MODULE, "setup", f"{folder}/graph", "open", 7))
    for name, runs in samples.items():
        _show_worst(f"{name} in epochs", [_in_epochs(run, "setup_s") for run in runs])
        _show_worst(f"{name}: first epoch / later ones", [_in_epochs(run, "first_epoch_s") for run in runs])
    ratios = [_in_epochs(run, "setup_s") for run in samples["setup_memory"]]
    return {"cpu_setup_epochs": statistics.median(ratios)}, samples


def _in_epochs(run: dict[str, Any], name: str) -> float:
    return float(run[name] / statistics.median(run["epoch_s"]))


def measure_tiny(quick: bool) -> Measured:
    """CPU seconds and peak memory of the program, beside those of importing torch."""
    _need_data(TINY)
    samples: dict[str, list[tuple[float, float]]] = {"torch": [], "tiny": []}
    for _ in range(3 if quick else 9):
        samples["torch"].append(_process_costs("-c", "import torch"))
        with tempfile.TemporaryDirectory() as folder:
            run = ("-m", "strobe", "train", TINY, "--model", "tgcn", "--epochs", "2", "--out", f"{folder}/run")
            samples["tiny"].append(_process_costs(*run))
    pairs = list(zip(samples["tiny"], samples["torch"], strict=True))
    ratios, above = [a / b for (a, _), (b, _) in pairs], [a - b for (_, a), (_, b) in pairs]
    _show_worst("CPU seconds of a tiny run / of importing torch", ratios)
    _show_worst("MiB of a tiny run above importing torch", above)
    return {"tiny_cpu_vs_torch": statistics.median(ratios), "tiny_mib_above_torch": statistics.median(above)}, samples


def measure_evaluation(quick: bool) -> Measured:
    """Evaluation relative to training in an epoch: of T-GCN, and in a full run of other models and small windows."""
    _need_data(SMALL)
    cases = [("tgcn", 0)] if quick else [(model, window) for model in SMALL_MODELS for window in (0, 8)]
    samples = {
        f"{model} window {window or 'all'}": [
            child(_MODULE, "evaluate", model, window, 60 if model in ("tgcn", "gcn") else 12)
            for _ in range(2 if quick else 5)
        ]
        for model, window in cases
    }
    for name, runs in samples.items():
        _show_worst(f"evaluation / training, {name}", [_share(run) for run in runs])
    first = next(iter(samples.values()))
    return {"evaluate_share_small": statistics.median(map(_share, first))}, {"evaluate_small": samples}


def _share(run: dict[str, Any]) -> float:
    evaluate_s, train_s = (statistics.median(run[name][1:]) for name in ("evaluate_s", "train_s"))
    return float(evaluate_s / train_s)


def measure_static(quick: bool) -> Measured:
    """Bytes and steps of a static graph."""
    figures, samples = startup_static.measure(quick)
    if ratios := samples.get("metr_step_ratios"):
        _show_worst(f"a step / that of {startup_static.BEFORE}", ratios)
    return figures, samples


def measure_gpu(quick: bool) -> Measured:
    """Runs on a GPU."""
    import torch

    if not torch.cuda.is_available():
        raise UnavailableError("there is no GPU")
    return startup_gpu.measure(quick=quick)


PARTS: dict[Callable[[bool], Measured], tuple[str, ...]] = {
    measure_setup: ("cpu_setup_epochs",),
    measure_tiny: ("tiny_cpu_vs_torch", "tiny_mib_above_torch"),
    measure_evaluation: ("evaluate_share_small",),
    measure_static: ("metr_disk_mb", "metr_step_vs_before"),
    startup_links.measure: (
        "link_snapshot_ms",
        "link_epoch_speedup",
        "link_around_epochs",
        "link_around_epochs_1m",
    ),
    measure_gpu: ("gpu_run_s", "gpu_run_cached_s", "gpu_run_worst_s"),
}
"""What is measured, with the names of its figures."""


def _need_data(name: str) -> None:
    """Raise ``UnavailableError`` where a data set would have to be downloaded."""
    from strobe.graph.datasets import data_dir, find, status

    if status(find(name), data_dir()) != "local":
        raise UnavailableError(f"the data set {name} is not in {data_dir()}")


def _process_costs(*arguments: str) -> tuple[float, float]:
    """CPU seconds (user and system) and peak MiB of a Python process."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def _show_worst(what: str, values: list[float]) -> None:
    print(f"{what}: {statistics.median(values):.2f}, at worst {max(values):.2f} of {len(values)}", flush=True)


def train_with_setup(path: Path, place: str, epochs: int) -> None:
    """Child: trains on a graph in memory, which it may ``save`` afterwards, or on disk (``open``); tells the seconds
    before the first epoch and those of every epoch."""
    import strobe
    from strobe import train
    from strobe.engine.progress import Progress
    from strobe.graph.synthetic import Social

    class Begin(Progress):
        setup: tuple[float, float] = 0.0, 0.0

        def begin(self, info: dict[str, Any]) -> None:
            self.setup = perf_counter() - began, process_time() - cpu

    social = Social(nodes=NODES, snapshots=SNAPSHOTS, edges=EDGES)
    graph = strobe.open(path) if place == "open" else social.write()
    progress, began, cpu = Begin(), perf_counter(), process_time()
    run = train(graph, "tgcn", "regression", device="cpu", patience=0, epochs=epochs, progress=progress)
    first, *later = [line["train_s"] + line["evaluate_s"] for line in run.history]
    if place == "save":
        graph.save(path)
    tell(setup_s=progress.setup[0], setup_cpu_s=progress.setup[1], first_epoch_s=first, epoch_s=later)


def train_small(model: str, window: int, epochs: int) -> None:
    """Child: trains on a small graph, and tells the seconds of every epoch."""
    from strobe import train

    run = train(SMALL, model, device="cpu", patience=0, epochs=epochs, window=window or None)
    tell(**{name: [line[name] for line in run.history] for name in ("train_s", "evaluate_s")})


def main() -> None:
    """Runs all parts and prints the figures."""
    chosen = options(__doc__ or "")
    if chosen.child and chosen.child[0] == "setup":
        return train_with_setup(Path(chosen.child[1]), chosen.child[2], int(chosen.child[3]))
    if chosen.child:
        return train_small(chosen.child[1], *map(int, chosen.child[2:]))
    record = Record("startup", chosen.quick)
    for measure, names in PARTS.items():
        try:
            figures, samples = measure(chosen.quick)
        except UnavailableError as error:
            record.missing |= dict.fromkeys(names, str(error))
            continue
        record.figures |= figures
        record.samples |= samples
        record.missing |= {name: startup_links.reason(name, chosen.quick) for name in names if name not in figures}
    table(["figure", "value"], [[name, f"{value:.3f}"] for name, value in record.figures.items()])
    for name, reason in record.missing.items():
        print(f"{name}: missing, {reason}")
    record.write(chosen.json)
    return None


if __name__ == "__main__":
    main()
