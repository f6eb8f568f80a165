from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from strobe.ops import native
from strobe.ops.dense.rows import add_rows, merge_rows, select_rows, split_rows

pytestmark = pytest.mark.usefixtures("one_thread")

quick = settings(deadline=None, max_examples=60)


@st.composite
def parts(draw: st.DrawFn, /) -> list[Tensor]:
    """Every row in exactly one of some lists, in any order; some lists may be empty. Two lists at least."""
    order = draw(st.integers(0, 8).flatmap(lambda count: st.permutations(range(count))))
    cuts = sorted(draw(st.lists(st.integers(0, len(order)), min_size=1, max_size=3)))
    return [torch.tensor(order[a:b], dtype=torch.int64) for a, b in pairwise([0, *cuts, len(order)])]


def rows_of(lists: list[Tensor], width: int = 2) -> Tensor:
    number = sum(len(rows) for rows in lists)
    return torch.randn(number, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()


@quick
@given(parts())
def test_parts_are_the_rows_that_their_lists_name(lists: list[Tensor]) -> None:
    x = rows_of(lists)
    found = split_rows(x, lists)
    assert [part.tolist() for part in found] == [x[rows].tolist() for rows in lists]
    weighed = sum(((k + 1.0) * part).sum() for k, part in enumerate(found))
    assert isinstance(weighed, Tensor)
    (gradient,) = torch.autograd.grad(weighed, x)
    expected = torch.zeros_like(x)
    for k, rows in enumerate(lists):
        expected[rows] = k + 1.0
    assert torch.equal(gradient, expected)


@quick
@given(parts())
def test_joining_inverts_parting(lists: list[Tensor]) -> None:
    x = rows_of(lists)
    whole = merge_rows(split_rows(x, lists), lists)
    assert torch.equal(whole, x)
    towards = torch.randn_like(x)
    (gradient,) = torch.autograd.grad((whole * towards).sum(), x)
    assert torch.equal(gradient, towards)


def test_joined_parts_stand_where_their_lists_say_and_get_their_own_gradients() -> None:
    first, second = (torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    lists = [torch.tensor([3, 0]), torch.tensor([1, 2])]
    whole = merge_rows([first, second], lists)
    assert torch.equal(whole, torch.stack([first[1], second[0], second[1], first[0]]))
    assert torch.autograd.gradcheck(lambda a, b: merge_rows([a, b], lists), (first, second))


def test_one_part_that_is_all_is_not_copied() -> None:
    x = torch.randn(3, 2)
    everything = [torch.arange(3)]
    (only,) = split_rows(x, everything)
    assert only is x
    assert merge_rows([x], everything) is x


@quick
@given(st.integers(0, 6).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(0, max(n - 1, 0)), unique=True))))
def test_picked_rows_get_their_gradients_and_the_others_none(drawn: tuple[int, list[int]]) -> None:
    number, chosen = drawn
    rows = torch.tensor(chosen if number else [], dtype=torch.int64)
    x = torch.randn(number, 3, dtype=torch.float64, requires_grad=True)
    found = select_rows(x, rows)
    assert found.tolist() == x[rows].tolist()
    towards = torch.randn_like(found)
    (gradient,) = torch.autograd.grad((found * towards).sum(), x)
    expected = torch.zeros_like(x)
    expected[rows] = towards
    assert torch.equal(gradient, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "torch"])
def test_rows_are_added_where_they_belong(dtype: torch.dtype, kernels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not kernels:
        monkeypatch.setattr(native, "library", lambda: None)
    generator = torch.Generator().manual_seed(0)
    for number, chosen, shape in ((5, [4, 0, 3], (2,)), (4, [], (3,)), (0, [], (1,)), (3, [2, 1, 0], (2, 2))):
        out = torch.randn(number, *shape, dtype=dtype, generator=generator)
        x = torch.randn(*reversed(shape), len(chosen), dtype=dtype, generator=generator)
        x = x.permute(*reversed(range(x.ndim)))  # rows that are not dense
        rows = torch.tensor(chosen, dtype=torch.int64)
        expected = out.clone()
        for place, row in enumerate(chosen):
            expected[row] += x[place]
        add_rows(out, rows, x)
        torch.testing.assert_close(out, expected, rtol=0, atol=0)
    many = torch.zeros(1000, 3, dtype=dtype)
    add_rows(many, torch.arange(999, -1, -1), torch.arange(3000.0, dtype=dtype).reshape(1000, 3))
    assert torch.equal(many.flip(0), torch.arange(3000.0, dtype=dtype).reshape(1000, 3))
