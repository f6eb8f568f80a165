"""How fast and how small is training beside PyTorch Geometric Temporal, on the same graph, in the same run?

Each model runs in two processes, one per system, that take turns epoch by epoch, so that whatever else the machine
does falls on both. Ratios are of medians; memory is each process's peak above what it held after importing.
MPNN-LSTM does more in Strobe than in the peer: it carries its state from snapshot to snapshot.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import peer_environment
from benchmarks.record import Record, options, table

MODELS = ("tgcn", "evolvegcno", "evolvegcnh", "mpnnlstm")
THREADS = 2
_SIDES = Path(__file__).with_name("peer_sides.py")


class Side:
    """One system's process."""

    def __init__(self, side: str, interpreter: str, model: str, sizes: tuple[int, int, int]) -> None:
        command = [interpreter, str(_SIDES), side, model, *map(str, sizes), str(THREADS)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.imported: int = self._next()["imported"]
        self.parameters = 0
        self.epochs: list[dict[str, float]] = []

    def wait(self) -> None:
        """Until graph and model are ready."""
        self.parameters = self._next()["parameters"]

    def epoch(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.epochs.append(self._next())

    def end(self) -> dict[str, Any]:
        """Lets the process go; what it measured. The first epoch is left out of the times: everything warms up."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        peak = self._next()["peak"]
        seconds = [epoch["seconds"] for epoch in self.epochs[1:]]
        return {
            "seconds": seconds,
            "median_s": statistics.median(seconds),
            "losses": [epoch["loss"] for epoch in self.epochs],
            "peak_bytes": peak - self.imported,
            "parameters": self.parameters,
        }

    def stop(self) -> None:
        """Ends the process if it is still there."""
        self._process.kill()
        self._process.wait()

    def _next(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("one side ended early; what it said stands above")
        said: dict[str, Any] = json.loads(line)
        return said


def compare(model: str, sizes: tuple[int, int, int], epochs: int) -> dict[str, dict[str, Any]]:
    """Both systems' measurements of one model, taken in turns."""
    interpreters = {"strobe": sys.executable, "pygt": str(peer_environment.python())}
    sides = {name: Side(name, interpreter, model, sizes) for name, interpreter in interpreters.items()}
    try:
        for side in sides.values():
            side.wait()
        for _ in range(epochs + 1):
            for side in sides.values():
                side.epoch()
        return {name: side.end() for name, side in sides.items()}
    finally:
        for side in sides.values():
            side.stop()


def main() -> None:
    """Runs the comparison and prints its table."""
    chosen = options(__doc__ or "")
    sizes = (5_000, 10, 15_000) if chosen.quick else (50_000, 20, 150_000)
    record = Record("peers", chosen.quick)
    record.samples["graph"] = dict(zip(("nodes", "snapshots", "edges_per_snapshot"), sizes, strict=True))
    rows = []
    for model in MODELS:
        try:
            found = compare(model, sizes, epochs=3 if chosen.quick else 7)
        except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
            record.missing[f"{model}_speedup"] = str(error)
            continue
        ours, theirs = found["strobe"], found["pygt"]
        speedup = theirs["median_s"] / ours["median_s"]
        memory = ours["peak_bytes"] / theirs["peak_bytes"]
        record.samples[model] = found
        record.figures[f"{model}_speedup"] = speedup
        record.figures[f"{model}_memory_ratio"] = memory
        spread = sorted(t / o for t, o in zip(theirs["seconds"], ours["seconds"], strict=True))
        rows.append(
            [
                model,
                f"{ours['median_s']:.3f}",
                f"{theirs['median_s']:.3f}",
                f"{speedup:.1f}x ({spread[0]:.1f} to {spread[-1]:.1f})",
                f"{ours['peak_bytes'] / 2**20:,.0f}",
                f"{theirs['peak_bytes'] / 2**20:,.0f}",
                f"{memory:.2f}",
            ]
        )
        print(f"{model}: {speedup:.1f}x", flush=True)
    header = ["model", "ours s", "theirs s", "faster (pairs)", "ours MiB", "theirs MiB", "memory"]
    table(header, rows)
    for figure, reason in record.missing.items():
        print(f"missing {figure}: {reason}")
    record.write(chosen.json)


if __name__ == "__main__":
    main()
