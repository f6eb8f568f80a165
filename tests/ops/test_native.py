"""The compiled library: that it is there, that every instruction set of this machine agrees, that it can be absent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from strobe.ops import native
from strobe.ops.dense.readout import readout
from strobe.ops.native.build import build
from strobe.ops.sparse.spmm import Sparse, spmm
from strobe.ops.time.gru import gru
from strobe.ops.time.lstm import lstm
from strobe.ops.time.sequences import Sequences

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


def test_a_library_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "VERSION", native.VERSION + 1)
    assert native.load("base") is None
    assert native.load("no such instruction set") is None


@pytest.mark.parametrize("absent", ["avx512", "avx2"])
def test_a_level_that_was_not_built_is_made_up_for_by_the_next(absent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    load = native.load
    monkeypatch.setattr(native, "load", lambda level: None if level == absent else load(level))
    native.library.cache_clear()
    assert native.library() is not None
    native.library.cache_clear()


def test_mixed_precisions_are_refused_as_torch_does() -> None:
    sequences = Sequences.of([np.arange(4)] * 2, 4)
    x, h = torch.randn(8, 2), torch.zeros(4, 3)
    weights = torch.randn(9, 2, dtype=torch.float64), torch.randn(9, 3, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="dtype"):
        gru(x, h, sequences, *weights)
    with pytest.raises(RuntimeError, match="dtype"):
        readout(torch.randn(5, 2), torch.randn(1, 2, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    matrix = Sparse.block_diagonal([(np.array([0, 1]), np.array([0]), np.ones(1))], dtype=torch.float32)
    with pytest.raises(RuntimeError, match="type"):
        spmm(matrix, torch.ones(1, 2, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_no_number_stays_none(dtype: torch.dtype) -> None:
    """A NaN that became an ordinary number would be scored as if it were one."""
    sequences = Sequences.of([np.arange(4)] * 2, 4)
    x, h = torch.randn(8, 2, dtype=dtype), torch.zeros(4, 16, dtype=dtype)
    x[1] = torch.nan
    weights = torch.randn(64, 2, dtype=dtype), torch.randn(64, 16, dtype=dtype)
    for reset_state in (False, True):
        out, _ = gru(x, h, sequences, weights[0][:48], weights[1][:48], reset_state=reset_state)
        assert out.isnan().all(1).tolist() == [False, True, False, False] * 2
    out, _ = lstm(x, (h, h), sequences, *weights)
    assert out.isnan().all(1).tolist() == [False, True, False, False] * 2
    said = readout(out, weights[1][:1], torch.zeros(1, dtype=dtype))
    assert said.isnan()[:, 0].tolist() == [False, True, False, False] * 2


def test_building_says_why_it_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", str(tmp_path / "no-compiler"))
    problem = build(tmp_path)
    assert problem is not None
    assert "no-compiler" in problem
    assert list(tmp_path.iterdir()) == []
