"""What does a static graph cost on disk, and in a training step, beside the commit before snapshots shared structures?

The shape of METR-LA: 207 sensors, 1,515 weighted links, 34,272 times of a speed and of the next one, which is the
label. A training step is one of T-GCN on a window of 12 snapshots. Both commits train in turn, an epoch each, in
processes of their own; the ratio is that of the CPU seconds of their steps.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

_ROOT = Path(__file__).resolve().parent.parent
BEFORE = "a34e82b"
"""The commit before start-up was looked at."""
NODES, EDGES, SNAPSHOTS, WINDOW = 207, 1_515, 34_272, 12
_BUILD = """
import torch
from strobe.ops.native import build
level = {"AVX512": "avx512", "AVX2": "avx2"}.get(torch.backends.cpu.get_cpu_capability(), "base")
build._LEVELS = {"base": build._LEVELS[level]}
build.build(build.HERE)
build.HERE.joinpath("kernels-base.so").rename(build.HERE / f"kernels-{level}.so")
"""
"""Compiles the kernels of this machine's instruction set only: the others take longer than the benchmark."""


def measure(quick: bool) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the figures ``metr_disk_mb`` and ``metr_step_vs_before`` (absent without the history), and raw samples."""
    figures, samples = {"metr_disk_mb": disk_bytes(SNAPSHOTS) / 1e6}, dict[str, Any]()
    with before() as folder:
        if folder is not None:
            folders = {"before": folder, "now": _ROOT}
            samples["metr_step_s"] = steps = train_in_turn(folders, *((4, 300) if quick else (30, 1_000)))
            ratios = [now / then for then, now in zip(steps["before"], steps["now"], strict=True)]
            samples["metr_step_ratios"] = ratios
            figures["metr_step_vs_before"] = statistics.median(ratios)
    return figures, samples


def metr_graph(snapshots: int) -> Any:
    """A graph of the shape of METR-LA with random links and speeds."""
    from strobe.graph import from_edges

    rng = np.random.default_rng(0)
    links = np.stack(np.divmod(rng.choice(NODES * NODES, EDGES, replace=False), NODES))
    weights = rng.uniform(0.1, 1, EDGES).astype(np.float32)
    speeds = rng.normal(54, 20, (snapshots + 1, NODES)).astype(np.float32)
    return from_edges(
        [links] * snapshots,
        weights=[weights] * snapshots,
        num_nodes=NODES,
        x=list(speeds[:-1, :, None]),
        y=list(speeds[1:]),
    )


def disk_bytes(snapshots: int) -> int:
    """Bytes of all files of the saved graph."""
    with tempfile.TemporaryDirectory() as folder:
        metr_graph(snapshots).save(Path(folder) / "graph")
        return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


@contextlib.contextmanager
def before() -> Iterator[Path | None]:
    """A worktree of the commit before, with its kernels; None without the history."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "before"
        if _git("worktree", "add", "--detach", str(folder), BEFORE):
            yield None
            return
        try:
            subprocess.run([sys.executable, "-c", _BUILD], check=True, cwd=folder, env=environment(folder))
            yield folder
        finally:
            _git("worktree", "remove", "--force", str(folder))


def _git(*arguments: str) -> int:
    try:
        return subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True).returncode
    except OSError:  # no git
        return 1


def train_in_turn(folders: dict[str, Path], epochs: int, snapshots: int) -> dict[str, list[float]]:
    """Median CPU seconds of a step, by commit and epoch, which costs the same on fewer snapshots; the first epoch is
    left out."""
    command = [sys.executable, str(Path(__file__).resolve()), "--child", str(epochs + 1), str(snapshots)]
    return run_in_turn(folders, command, epochs)


def run_in_turn(folders: dict[str, Path], command: list[str], epochs: int) -> dict[str, list[float]]:
    """What a child in each folder prints after each epoch, an epoch of one after an epoch of the other; without the
    first. Children wait for a line between epochs, and are killed after the last."""
    children = {
        name: subprocess.Popen(
            command, cwd=folder, env=environment(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name, folder in folders.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in folders}
    for epoch in range(epochs + 1):
        for name, process in children.items():
            assert process.stdin is not None
            assert process.stdout is not None
            if epoch:
                process.stdin.write("\n")
                process.stdin.flush()
            seconds[name].append(json.loads(process.stdout.readline()))
    for process in children.values():
        process.kill()
        process.wait()
    return {name: each[1:] for name, each in seconds.items()}


def environment(folder: Path) -> dict[str, str]:
    """The environment in which ``strobe`` is that of a worktree, and ``benchmarks`` that of this file."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(_ROOT)])}


def train_epochs(epochs: int, snapshots: int) -> None:
    """Child: trains, and after each epoch prints the median CPU seconds of its steps and waits for a line."""
    from strobe import train
    from strobe.engine.progress import Progress
    from strobe.tasks.regression import NodeRegression

    class Steps(Progress):
        marks: list[float] = []  # noqa: RUF012  one object

        def step(self, epoch: int, step: int) -> None:
            self.marks.append(process_time())

        def epoch(self, line: dict[str, Any]) -> None:
            print(json.dumps(statistics.median(np.diff(self.marks).tolist())), flush=True)
            sys.stdin.readline()
            self.marks.clear()

    train(
        metr_graph(snapshots),
        "tgcn",
        NodeRegression(target="labels"),
        progress=Steps(),
        window=WINDOW,
        epochs=epochs,
        evaluate_every=epochs,
        threads=1,
    )


if __name__ == "__main__":
    train_epochs(*map(int, sys.argv[2:]))
