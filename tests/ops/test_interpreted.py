"""The GPU kernels where there is no GPU: test_triton.py once more, by Triton's interpreter.

In a process of its own: Triton decides when it is loaded, for good, whether it interprets, and all other tests are to
meet it as users do.
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


@pytest.mark.skipif(not triton.available(), reason="Triton is not installed")
@pytest.mark.skipif(torch.cuda.is_available(), reason="test_triton.py runs on the GPU")
def test_kernels_give_on_the_cpu_what_plain_torch_gives() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "tests/ops/test_triton.py", "-p", "no:cacheprovider", "--tb=short"]
    child = subprocess.run(
        command, cwd=ROOT, env=environment | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=280
    )
    said = child.stdout + child.stderr
    assert child.returncode == 0, said
    assert "skipped" not in said, said


def test_rows_on_the_cpu_are_no_work_for_the_kernels_unless_they_are_interpreted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert not triton.usable(torch.zeros(2, 3))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert triton.usable(torch.zeros(2, 3)) == triton.available()
