"""GPU kernels without a GPU: test_triton.py by Triton's interpreter.

In a process of its own: Triton decides at import whether it interprets.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from strobe.ops import triton

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(not triton.available(), reason="Triton is not installed")
@pytest.mark.skipif(torch.cuda.is_available(), reason="test_triton.py runs on the GPU")
def test_kernels_match_plain_torch_in_the_interpreter() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    child = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/ops/test_triton.py", "-p", "no:cacheprovider", "--tb=short"],
        cwd=ROOT,
        env=environment | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    output = child.stdout + child.stderr
    assert child.returncode == 0, output
    assert "skipped" not in output, output


def test_kernels_run_on_the_cpu_only_if_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    cpu = torch.device("cpu")
    usable = triton.usable.__wrapped__
    assert not usable(cpu, torch.float32)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert usable(cpu, torch.float32) == triton.available()
    assert not usable(cpu, torch.float32, torch.bfloat16)


@pytest.mark.skipif(not triton.available(), reason="Triton is not installed")
def test_files_of_triton_are_hashed_before_the_first_kernel() -> None:
    code = """
from strobe.ops import triton
triton._load()
from triton.runtime.cache import triton_key
assert triton_key.cache_info().currsize == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=120)
