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


_TRAIN_LARGER = """
import strobe
from strobe.graph.synthetic import Social
from strobe.ops.runtime.njit import SMALL
graph = Social(nodes=2 * SMALL, snapshots=5, edges=2 * SMALL).write()
strobe.train(graph, "tgcn", "regression", epochs=1, device="cpu")
"""


def test_training_on_more_nodes_compiles_nothing(tmp_path: Path) -> None:
    assert not loaded(_TRAIN_LARGER, tmp_path) & {"numba", "scipy", "torch._dynamo"}


def test_estimating_memory_does_not_load_the_compiler_of_torch(tmp_path: Path) -> None:
    code = "import strobe.engine.train as train\ntrain.free_bytes = lambda device: 2_000_000_000"
    assert "torch._dynamo" not in loaded(code + _TRAIN_LARGER, tmp_path)
