"""The compiled library: that it is there, that every instruction set of this machine agrees, that it can be absent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from strobe.ops import native
from strobe.ops.gru import gru
from strobe.ops.native.build import build
from strobe.ops.sequences import Sequences

CAPABLE = {"DEFAULT": ["base"], "AVX2": ["base", "avx2"], "AVX512": ["base", "avx2", "avx512"]}


def _run() -> list[torch.Tensor]:
    sequences = Sequences.of([np.arange(t % 2, 20) for t in range(5)], 20)
    torch.manual_seed(0)
    x, h = torch.randn(sequences.num_cells, 3), torch.zeros(20, 24)
    weights = [torch.randn(72, 3).requires_grad_(), torch.randn(72, 24).requires_grad_()]
    out, _ = gru(x, h, sequences, *weights)
    return [out, *torch.autograd.grad(out.square().sum(), weights)]


@pytest.mark.parametrize("level", CAPABLE.get(torch.backends.cpu.get_cpu_capability(), ["base"]))
def test_every_instruction_set_gives_the_same_to_rounding(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = native.load(level)
    assert library is not None
    expected = _run()
    monkeypatch.setattr(native, "library", lambda: library)
    for found, right in zip(_run(), expected, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)


def test_without_the_library_plain_torch_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _run()
    monkeypatch.setattr(native, "library", lambda: None)
    for found, right in zip(_run(), expected, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)


def test_a_library_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "VERSION", native.VERSION + 1)
    assert native.load("base") is None
    assert native.load("no such instruction set") is None


def test_building_says_why_it_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", str(tmp_path / "no-compiler"))
    problem = build(tmp_path)
    assert problem is not None
    assert "no-compiler" in problem
    assert list(tmp_path.iterdir()) == []
