"""What every benchmark shares: its options, child processes with their peak memory, and the record it writes."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
_PACKAGES = ("numpy", "scipy", "torch", "torch-geometric", "duckdb", "pyarrow", "pandas")


def options(description: str) -> argparse.Namespace:
    """What the command line of a benchmark says that has no more options than all have."""
    return option_parser(description).parse_args()


def option_parser(description: str | None) -> argparse.ArgumentParser:
    """--quick, --json, and what a child process is told."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the same on less work, within 50 seconds")
    parser.add_argument("--json", type=Path, help="where the record goes")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    return parser


def child(module: str, *arguments: object) -> dict[str, Any]:
    """Runs a part of a benchmark in a process of its own, so that its peak memory is its own; gives what it printed."""
    command = [sys.executable, "-m", module, "--child", *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def tell(**values: Any) -> None:
    """What a child says to its parent: its values and the most memory it ever held."""
    print(json.dumps({**values, "peak_bytes": memory("VmHWM")}))


def memory(kind: str) -> int:
    """Bytes of this process's memory: now (VmRSS), or at its peak (VmHWM), which unlike ru_maxrss is not inherited."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith(kind)).split()[1])


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A plain table with columns as wide as they need to be."""
    lines = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(header))]
    for number, line in enumerate(lines):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))


@dataclass
class Record:
    """A benchmark's outcome: figures by name, raw samples, what could not be had and why."""

    name: str
    quick: bool
    figures: dict[str, float] = field(default_factory=dict)
    samples: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def recall(self, path: Path | None) -> None:
        """Goes on with what is in a record already, if it is one of the same kind."""
        known = path or RESULTS / f"{self.name}.json"
        if known.exists() and (found := json.loads(known.read_text()))["quick"] == self.quick:
            for name in ("figures", "samples", "missing"):
                getattr(self, name).update(found[name])

    def write(self, path: Path | None) -> None:
        """Writes the record as JSON; without a path only a full run is kept, among the results."""
        target = path or (None if self.quick else RESULTS / f"{self.name}.json")
        if target is None:
            return
        versions = {package: _version(package) for package in _PACKAGES}
        content = {
            "name": self.name,
            "quick": self.quick,
            "figures": self.figures,
            "missing": self.missing,
            "samples": self.samples,
            "hardware": {"cpu": cpu(), "cores": os.cpu_count(), "memory_gib": round(memory_bytes() / 2**30, 1)},
            "versions": {"python": platform.python_version(), **versions},
            "commit": commit(),
        }
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(content, indent=1) + "\n")
        print(f"record: {target}")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def cpu() -> str:
    """The name of the processor."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.processor()


def memory_bytes() -> int:
    """Memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def commit() -> str:
    """The commit that is checked out."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=RESULTS.parent)
    return done.stdout.strip() or "unknown"
