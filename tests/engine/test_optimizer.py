"""Optimizers of the CPU: weights and states of ``torch.optim`` to the last bit, without loading torch's compiler."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from strobe.engine.optimizer import SGD, Adam, load_optimizer_state
from strobe.errors import FormatError
from strobe.sync.base import Optimizer

SHAPES = [(), (3,), (4, 5), (17,), (2, 3, 3)]


@dataclass(frozen=True)
class Case:
    """An optimizer, and the one of torch that it must equal."""

    own: Callable[..., Optimizer]
    torch: Callable[..., Optimizer]


CASES = {
    "adam": Case(Adam, lambda weights, **given: torch.optim.Adam(weights, foreach=False, fused=None, **given)),
    "sgd": Case(SGD, lambda weights, **given: torch.optim.SGD(weights, foreach=False, fused=None, **given)),
}


def make_weights(dtype: torch.dtype) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    weights = [nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype)) for shape in SHAPES]
    weights.append(nn.Parameter(torch.randn(3, 4, generator=generator, dtype=dtype).T))  # not contiguous
    return [*weights, nn.Parameter(torch.ones(2, dtype=dtype), requires_grad=False)]


def take_steps(optimizer: Optimizer, steps: range) -> None:
    """Steps whose gradients depend on the step only; in some of them some weights have none."""
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for k, weight in enumerate(optimizer.param_groups[0]["params"]):
            drawn = torch.randn(weight.shape, generator=generator, dtype=weight.dtype) * 10.0 ** (step % 7 - 4)
            if weight.requires_grad and (step + k) % 4:
                weight.grad = drawn
        optimizer.step()
        optimizer.zero_grad()


def bits(tree: Any) -> Any:
    """The same with tensors as their kinds, shapes and bytes."""
    if isinstance(tree, Tensor):
        return str(tree.dtype), tuple(tree.shape), tree.detach().contiguous().numpy().tobytes()
    if isinstance(tree, dict):
        return {name: bits(value) for name, value in tree.items()}
    return [bits(each) for each in tree]


def all_bits(optimizer: Optimizer) -> Any:
    return bits([optimizer.param_groups[0]["params"], optimizer.state_dict()["state"]])


@settings(max_examples=30)
@given(
    name=st.sampled_from(list(CASES)),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    lr=st.floats(1e-6, 10),
    weight_decay=st.sampled_from([0.0, 1e-3, 0.5]),
    num_steps=st.integers(1, 12),
)
def test_weights_and_states_are_those_of_torch_to_the_last_bit(
    name: str, dtype: torch.dtype, lr: float, weight_decay: float, num_steps: int
) -> None:
    own, other = (
        make(make_weights(dtype), lr=lr, weight_decay=weight_decay) for make in (CASES[name].own, CASES[name].torch)
    )
    for step in range(num_steps):
        take_steps(own, range(step, step + 1))
        take_steps(other, range(step, step + 1))
        assert all_bits(own) == all_bits(other), f"after step {step}"


def test_large_and_small_weights_of_two_dtypes_are_those_of_torch() -> None:
    shapes = [((300, 300), torch.float32), ((4,), torch.float32), ((3, 2), torch.float64), ((70_000,), torch.float64)]

    def weights() -> list[nn.Parameter]:
        return [nn.Parameter(torch.ones(shape, dtype=dtype)) for shape, dtype in shapes]

    own, other = Adam(weights(), lr=0.1), CASES["adam"].torch(weights(), lr=0.1)
    for optimizer in (own, other):
        take_steps(optimizer, range(5))
    assert all_bits(own) == all_bits(other)


def test_a_state_that_others_change_in_place_or_clear_is_the_one_that_the_next_step_uses() -> None:
    """As averages over ranks do, and online training with ``reset_optimizer``."""
    own, other = (make(make_weights(torch.float32)) for make in (CASES["adam"].own, CASES["adam"].torch))
    for optimizer in (own, other):
        take_steps(optimizer, range(3))
        for k, weight in enumerate(optimizer.param_groups[0]["params"][:5]):
            for name, value in optimizer.state[weight].items():
                value.mul_(0.5).add_(k if name == "step" else 0.25)
        take_steps(optimizer, range(3, 6))
        weight = optimizer.param_groups[0]["params"][0]
        optimizer.state[weight] = {name: value.clone() + 1 for name, value in optimizer.state[weight].items()}
        take_steps(optimizer, range(6, 9))
    assert all_bits(own) == all_bits(other)
    for optimizer in (own, other):
        optimizer.state.clear()
        take_steps(optimizer, range(2))
    assert all_bits(own) == all_bits(other)


def test_small_weights_are_updated_together_where_all_have_a_gradient() -> None:
    weights = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2, 2))]
    optimizer = Adam(weights)
    for _ in range(2):
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        optimizer.step()
        optimizer.zero_grad()
    storages = {optimizer.state[weight]["exp_avg"].untyped_storage().data_ptr() for weight in weights}
    assert len(storages) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_a_loaded_state_continues_to_the_last_bit(name: str, dtype: torch.dtype) -> None:
    case, options = CASES[name], {"lr": 0.03, "weight_decay": 0.1}
    whole = case.own(make_weights(dtype), **options)
    take_steps(whole, range(9))
    for first, second in [(case.own, case.own), (case.own, case.torch), (case.torch, case.own)]:
        begun = first(make_weights(dtype), **options)
        take_steps(begun, range(4))
        weights = [nn.Parameter(each.detach().clone(), each.requires_grad) for each in begun.param_groups[0]["params"]]
        resumed = second(weights, **options)
        load_optimizer_state(resumed, copy.deepcopy(begun.state_dict()))
        assert all_bits(resumed) == all_bits(begun)
        take_steps(resumed, range(4, 9))
        assert all_bits(resumed) == all_bits(whole)


def test_a_state_dict_has_the_shape_of_torch_and_restores_options() -> None:
    own, other = Adam(make_weights(torch.float32), lr=0.2), torch.optim.Adam(make_weights(torch.float32), lr=0.2)
    take_steps(own, range(3))
    take_steps(other, range(3))
    (group,), (wanted,) = own.state_dict()["param_groups"], other.state_dict()["param_groups"]
    assert group == {name: wanted[name] for name in group}
    again = Adam(make_weights(torch.float32), lr=0.9, weight_decay=0.5)
    again.load_state_dict(own.state_dict())
    assert again.state_dict()["param_groups"] == own.state_dict()["param_groups"]
    assert all(a is b for a, b in zip(again.param_groups[0]["params"], again.state, strict=False))


def test_the_state_of_other_weights_is_refused() -> None:
    weights = make_weights(torch.float32)
    saved = Adam(weights)
    take_steps(saved, range(2))
    with pytest.raises(ValueError, match="of 7 weights, not of 2"):
        Adam(weights[:2]).load_state_dict(saved.state_dict())
    with pytest.raises(FormatError, match="not of 2 weights"):
        load_optimizer_state(Adam(weights[:2]), saved.state_dict())
    with pytest.raises(FormatError, match="shape"):
        load_optimizer_state(Adam(weights[::-1]), saved.state_dict())
    with pytest.raises(FormatError, match="shape"):
        load_optimizer_state(SGD(weights, lr=0.1), saved.state_dict())


def test_training_on_a_cpu_loads_neither_the_compiler_of_torch_nor_pandas_nor_optimizers_of_scipy() -> None:
    code = """
import sys, tempfile, strobe
from tests.support.runs import small_graph
for optimizer in ("adam", "sgd"):
    with tempfile.TemporaryDirectory() as out:
        given = {"optimizer": optimizer, "clip": 1.0, "epochs": 2, "window": 3, "device": "cpu"}
        strobe.train(small_graph(), "tgcn", "regression", out=out, **given)
assert not {"torch._dynamo", "pandas", "scipy.optimize"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
