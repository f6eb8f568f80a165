"""Compile the CPU kernels next to their source, per instruction set. Standard library only: the installer runs it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGE_DIR = Path(__file__).resolve().parent
# Without errno and traps loops vectorize; sums keep their order.
_FLAGS = ["-O3", "-std=gnu11", "-shared", "-fPIC", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math"]
_LEVELS = {
    "base": ["-ffp-contract=off"],  # rounds as numpy does
    "avx2": ["-march=x86-64-v3", "-ffp-contract=fast"],
    "avx512": ["-march=x86-64-v4", "-ffp-contract=fast", "-mprefer-vector-width=512"],
}


def build(target: Path = PACKAGE_DIR) -> str | None:
    """Compile the libraries; returns the reason if that fails."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return "no C compiler was found (gcc or cc, or the one CC names)"
    levels = _LEVELS if platform.machine() == "x86_64" else {"base": []}
    problems = {
        level: _compile([compiler, *_FLAGS, *flags], target / f"kernels-{level}.so") for level, flags in levels.items()
    }
    return problems["base"]  # an old compiler may not know the newest instruction sets


def _compile(command: list[str], library: Path) -> str | None:
    # Other processes may use or build the library: write to a temporary file, then replace it.
    partial = library.with_name(f"{library.name}.{os.getpid()}")
    try:
        arguments = [*command, "-o", str(partial), str(PACKAGE_DIR / "kernels.c"), "-lm"]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
        if done.returncode:
            return f"{command[0]} failed: {done.stderr.strip()[-500:]}"
        partial.replace(library)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        partial.unlink(missing_ok=True)
    return None


if __name__ == "__main__":
    sys.exit(build())
