"""Compiles the CPU kernels next to their source. Needs no package, so that installing can call it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIBRARY = HERE / "kernels.so"
_FLAGS = ["-O3", "-std=gnu11", "-shared", "-fPIC", "-fopenmp-simd"]
# No error numbers and no traps, or nothing would be vectorised; sums stay in the order they are written in.
_FLAGS += ["-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]
if platform.machine() == "x86_64":
    _FLAGS += ["-mprefer-vector-width=512"]


def build(target: Path = LIBRARY) -> str | None:
    """Compiles the library; the reason why not, where it cannot be."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return "no C compiler was found (gcc or cc, or the one CC names)"
    # Ranks may build at once, and others may have the library open: write beside it, then take its place.
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    command = [compiler, *_FLAGS, "-o", str(partial), str(HERE / "kernels.c"), "-lm"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode:
            return f"{compiler} failed: {done.stderr.strip()[-500:]}"
        partial.replace(target)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        partial.unlink(missing_ok=True)
    return None


if __name__ == "__main__":
    sys.exit(build())
