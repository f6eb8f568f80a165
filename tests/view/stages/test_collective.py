from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from strobe.comm import Comm
from strobe.ops.dense.segments import densify_gradient
from strobe.placement import Partition
from strobe.view import View, WindowData
from tests.support.model_cases import CHANGING, with_inputs
from tests.support.partitions import Owned, among_threads, owned_graphs
from tests.support.ranks import as_threads

EPS = 1e-5
sparing = among_threads(25)


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def assert_close(ours: Any, theirs: Any) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11, equal_nan=True)


# The best rows.


def top_rows(view: View, x: Tensor, direction: Tensor, k: int, aim: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The best rows of each snapshot, and the gradients of what they are pulled towards."""
    x, direction = x.clone().requires_grad_(), direction.clone().requires_grad_()
    top = view.top_rows(densify_gradient(x), direction, k)
    view.attach_exchanges((top * aim).sum()).backward()
    return top.detach(), _gradient(x), _gradient(direction)


def _gradient(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


def assert_same_top_rows(owned: Owned, x: Tensor, direction: Tensor, k: int) -> None:
    """Every rank finds the same rows as one rank would, and gradients add up to what one rank's are."""
    aims = [random(len(owned.graph), k, x.shape[1], seed=10 + rank) for rank in range(owned.num_ranks)]
    whole = View(WindowData(owned.graph, dtype=torch.float64))
    top, d_x, d_direction = top_rows(whole, x, direction, k, torch.stack(aims).sum(0))

    def work(comm: Comm) -> tuple[Tensor, Tensor, Tensor]:
        return top_rows(View(owned.cells(comm)), x[owned.numbers(comm.rank)], direction, k, aims[comm.rank])

    found = as_threads(work, owned.num_ranks)
    for rank, (here, gradient, _) in enumerate(found):
        assert_close(here, top)
        assert_close(gradient, d_x[owned.numbers(rank)])
    assert_close(sum(each[2] for each in found), d_direction)


@sparing
@given(owned_graphs(max_nodes=5, min_snapshots=1, max_snapshots=3), st.integers(1, 7))
def test_top_rows_across_ranks_equal_those_of_whole_snapshots(owned: Owned, k: int) -> None:
    assert_same_top_rows(owned, random(owned.graph.num_cells, 3, seed=0), random(3, seed=1), k)


@sparing
@given(owned_graphs(max_nodes=6, min_snapshots=1, max_snapshots=2), st.integers(1, 4), st.data())
def test_top_rows_across_ranks_breaks_ties_by_position(owned: Owned, k: int, data: st.DataObject) -> None:
    number = owned.graph.num_cells
    scores = data.draw(st.lists(st.sampled_from([-1.0, 0.0, 2.0]), min_size=number, max_size=number))
    x = torch.stack([torch.tensor(scores, dtype=torch.float64), torch.arange(number, dtype=torch.float64)], 1)
    assert_same_top_rows(owned, x, torch.tensor([3.0, 0.0], dtype=torch.float64), k)


# Moments.


def standardised(view: View, x: Tensor, scale: Tensor, shift: Tensor, aim: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Rows, means and variances; gradients in rows, scale and shift."""
    leaves = [each.clone().requires_grad_() for each in (x, scale, shift)]
    out, means, variances = view.snapshot_norm(leaves[0], leaves[1], leaves[2], EPS)
    assert not means.requires_grad
    assert not variances.requires_grad
    view.attach_exchanges((out * aim).sum()).backward()
    return [out.detach(), means, variances], [_gradient(leaf) for leaf in leaves]


def assert_same_standardised(owned: Owned) -> None:
    number = owned.graph.num_cells
    x, aim = random(number, 3, seed=0) * 2 + 5, random(number, 3, seed=1)
    scale, shift = random(3, seed=2), random(3, seed=3)
    whole = View(WindowData(owned.graph, dtype=torch.float64))
    (out, means, variances), (d_x, d_scale, d_shift) = standardised(whole, x, scale, shift, aim)

    def work(comm: Comm) -> tuple[list[Tensor], list[Tensor]]:
        at = owned.numbers(comm.rank)
        return standardised(View(owned.cells(comm)), x[at], scale, shift, aim[at])

    found = as_threads(work, owned.num_ranks)
    for rank, (told, gradients) in enumerate(found):
        at = owned.numbers(rank)
        assert_close(told, [out[at], means, variances])
        assert_close(gradients[0], d_x[at])
    assert_close(sum(gradients[1] for _, gradients in found), d_scale)
    assert_close(sum(gradients[2] for _, gradients in found), d_shift)


@sparing
@given(owned_graphs(max_nodes=5, min_snapshots=1, max_snapshots=4))
def test_snapshot_norm_uses_the_moments_of_all_ranks(owned: Owned) -> None:
    assert_same_standardised(owned)


def test_whole_snapshots_exchange_only_moments() -> None:
    graph = with_inputs(CHANGING.build())
    owned = Owned(CHANGING, graph, Partition.by_snapshot(2, np.array([0, 1, 0, 1, 0, 1]), graph.num_nodes))
    asked: list[int] = []

    def work(comm: Comm) -> None:
        total = comm.all_reduce

        def noted(values: Tensor, *, kind: str) -> Tensor:
            asked.append(comm.rank)
            return total(values, kind=kind)

        comm.all_reduce = noted  # type: ignore[method-assign]
        x = random(graph.num_cells, 3, seed=0)[owned.numbers(comm.rank)]
        standardised(View(owned.cells(comm)), x, torch.ones(3).double(), torch.zeros(3).double(), torch.ones_like(x))

    as_threads(work, 2)
    assert sorted(asked) == [0, 1], "one sum in the forward pass, none in the backward pass"


@pytest.mark.parametrize("split", [True, False], ids=["split", "whole"])
def test_rank_that_ignores_its_output_takes_part_in_backward(split: bool) -> None:
    graph = with_inputs(CHANGING.build())
    by_cell = Partition.by_cell(2, np.arange(graph.num_cells) % 2, graph)
    by_snapshot = Partition.by_snapshot(2, np.array([0, 1, 1, 1, 0, 1]), graph.num_nodes)
    owned = Owned(CHANGING, graph, by_cell if split else by_snapshot)
    x, one, direction = random(graph.num_cells, 2, seed=0), torch.ones(2).double(), random(2, seed=1)

    def both(view: View, rows: Tensor) -> tuple[Tensor, Tensor]:
        out, _, _ = view.snapshot_norm(rows, one, one, EPS)
        return out**3, view.top_rows(densify_gradient(rows), direction, 2)

    def work(comm: Comm) -> Tensor:
        rows = x[owned.numbers(comm.rank)].requires_grad_()
        view = View(owned.cells(comm))
        out, top = both(view, rows)
        view.attach_exchanges(torch.zeros(()).double() if comm.rank else out.sum() + top.sum()).backward()
        return _gradient(rows)

    whole = x.clone().requires_grad_()
    out, top = both(View(WindowData(graph, dtype=torch.float64)), whole)
    (out[owned.numbers(0)].sum() + top.sum()).backward()
    for rank, gradient in enumerate(as_threads(work, 2)):
        assert_close(gradient, _gradient(whole)[owned.numbers(rank)])
