from __future__ import annotations

from typing import Any

import pytest
import torch

from strobe.ops.dense import snapshot_norm as module
from strobe.ops.dense.segments import segment_norm
from strobe.ops.dense.snapshot_norm import snapshot_norm
from tests.ops.dense.test_segments import EVERY_PTR, random


@pytest.fixture(params=[2, 1024], ids=["small chunks", "one chunk"], autouse=True)
def _chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_ROWS", request.param)


@EVERY_PTR
@pytest.mark.parametrize("width", [1, 3, 19])
def test_it_equals_torch_batch_norm_on_each_snapshot_with_its_gradients(ptr: tuple[int, ...], width: int) -> None:
    given = random(ptr[-1], width), random(width, seed=1), random(width, seed=2)
    fast, plain = (run(*given, 1e-3, ptr) for run in (snapshot_norm, segment_norm))
    assert not fast[1].requires_grad
    for one, other in zip(fast, plain, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)
    up = random(ptr[-1], width, seed=3)
    for one, other in zip(
        torch.autograd.grad(fast[0], given, up), torch.autograd.grad(plain[0], given, up), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_gradients_are_those_of_its_values() -> None:
    given = random(9, 3), random(3, seed=1), random(3, seed=2)
    assert torch.autograd.gradcheck(lambda x, a, b: snapshot_norm(x, a, b, 1e-3, (0, 3, 3, 4, 9))[0], given)


@pytest.mark.parametrize("norm", [snapshot_norm, segment_norm])
def test_it_keeps_its_precision_far_from_zero(norm: Any) -> None:
    x = (random(1000, 2).detach() + 1000).float()
    out, _, variances = norm(x, torch.ones(2), torch.zeros(2), 0.0, (0, 1000))
    torch.testing.assert_close(variances[0], x.double().var(0).float(), rtol=1e-4, atol=0)
    torch.testing.assert_close(out.mean(0), torch.zeros(2), rtol=0, atol=1e-3)
