"""An environment of its own for PyTorch Geometric Temporal: ``python -m benchmarks.peer_environment``.

Its wheel asks for torch-sparse and torch-scatter, which exist as sources only and which none of the measured cells
calls, so it is installed without its dependencies beside two stand-ins. Everything else it shares with the
environment this runs in: both systems are measured on the same torch.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / ".peers"
PACKAGE = "torch-geometric-temporal==0.56.2"
_STAND_IN = '''"""Stands in for a package that is never called here."""


class SparseTensor:
    pass


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return None
'''


def python() -> Path:
    """The interpreter of the peer's environment, which is made when it is not there."""
    interpreter = FOLDER / "bin" / "python"
    if not (FOLDER / "ready").exists():
        _make(interpreter)
    return interpreter


def _make(interpreter: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], check=True)
    quiet = ["--quiet", "--disable-pip-version-check"]
    command = [str(interpreter), "-m", "pip", "install", *quiet, "--no-deps", PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{PACKAGE} could not be installed: {done.stderr.strip()[-300:]}")
    asked = [str(interpreter), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"]
    packages = Path(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip())
    for name in ("torch_sparse", "torch_scatter"):
        (packages / f"{name}.py").write_text(_STAND_IN)
    (packages / "shared.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    (FOLDER / "ready").touch()


if __name__ == "__main__":
    print(python())
