"""What a process loads: nothing that it does not use. Each case runs in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"duckdb", "numba", "pandas", "plotly", "pyarrow", "pymetis", "scipy", "tensorboard", "torch._dynamo"}

_TRAIN = """
import strobe, strobe.cli.commands.train
from tests.support.runs import small_graph
strobe.train(small_graph(), "tgcn", "regression", out="run", epochs=2, device="cpu")
"""


def loaded(code: str, folder: Path) -> set[str]:
    """The modules that a process has loaded in the end."""
    code += "\nimport sys\nprint('\\n' + ' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    return set(done.stdout.splitlines()[-1].split())


def test_importing_strobe_loads_neither_numpy_nor_torch(tmp_path: Path) -> None:
    assert not loaded("import strobe", tmp_path) & (HEAVY | {"numpy", "torch"})


@pytest.mark.parametrize("name", ["open", "from_edges", "DynamicGraph", "load"])
def test_graphs_need_no_torch(tmp_path: Path, name: str) -> None:
    assert not loaded(f"import strobe; strobe.{name}", tmp_path) & (HEAVY | {"torch"})


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_needs_no_torch(tmp_path: Path, arguments: list[str]) -> None:
    code = f"from strobe.cli.main import app\napp({arguments}, standalone_mode=False)"
    assert not loaded(code, tmp_path) & (HEAVY | {"torch"})


def test_training_on_a_small_graph_loads_torch_alone(tmp_path: Path) -> None:
    assert loaded(_TRAIN, tmp_path) & (HEAVY | {"torch"}) == {"torch"}


def test_measuring_memory_loads_no_compiler(tmp_path: Path) -> None:
    code = """
import torch
from strobe.ops.runtime.memory_trace import measure_memory
measure_memory(lambda: torch.ones(3) + 1, torch.device("cpu"))
"""
    assert "torch._dynamo" not in loaded(code, tmp_path)
