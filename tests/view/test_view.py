from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch

from strobe.ops.sparse.normalize import Norm
from strobe.view import Carry, View, WindowData
from tests.support.dense import window_matrix
from tests.support.graphs import PlainGraph, PlainSnapshot
from tests.support.model_cases import AWKWARD_GRAPHS, CHANGING, INPUTS, with_inputs


def view_of(plain: PlainGraph = CHANGING, carry: Carry | None = None) -> View:
    return View(WindowData(with_inputs(plain.build()), dtype=torch.float64), carry)


# Structure.


@pytest.mark.parametrize("norm", get_args(Norm))
def test_aggregate_is_the_product_and_its_gradient_the_transposed_product(norm: Norm) -> None:
    view = view_of()
    matrix = torch.from_numpy(window_matrix(norm, CHANGING))
    z = torch.randn(view.num_cells, 4, dtype=torch.float64, requires_grad=True)
    towards = torch.randn_like(z)
    out = view.aggregate(z, norm)
    torch.testing.assert_close(out, matrix @ z, rtol=1e-12, atol=1e-12)
    (grad,) = torch.autograd.grad((out * towards).sum(), z)
    torch.testing.assert_close(grad, matrix.t() @ towards, rtol=1e-12, atol=1e-12)


def test_aggregates_of_the_inputs_are_cached_across_passes() -> None:
    view = view_of()
    once = view.aggregate(view.x)
    twice = view.aggregate(once, "mean")
    later = View(view.data)
    assert later.aggregate(later.x) is once
    assert later.aggregate(later.aggregate(later.x), "mean") is twice
    torch.testing.assert_close(once, view.aggregate(view.x.clone()), rtol=1e-12, atol=1e-12)


def test_edge_index_points_from_read_to_reading_cells() -> None:
    view = view_of(PlainGraph(3, [PlainSnapshot([0, 2], [(0, 2, 0.5)], 0), PlainSnapshot([1, 2], [(2, 1, 4.0)], 1)]))
    assert view.edge_index.tolist() == [[0, 3], [1, 2]]
    assert view.edge_weight is None
    weighted = view_of(replace(CHANGING, snapshots=CHANGING.snapshots[:1]))
    assert weighted.edge_weight is not None
    assert weighted.edge_weight.tolist() == [1.0, 0.25, 2.0, 0.5]


# Time.


def test_states_are_loaded_in_the_order_they_were_saved() -> None:
    first = view_of()
    assert first.load_state() is None
    first.save_state("a")
    assert first.load_state() is None
    first.save_state({"b": 1})
    second = view_of(carry=first.carry)
    assert second.load_state() == "a"
    second.save_state("c")
    assert second.load_state() == {"b": 1}
    second.save_state("d")
    assert (first.carry, second.carry) == (["a", {"b": 1}], ["c", "d"])


# Snapshot by snapshot.


@pytest.mark.parametrize("name", AWKWARD_GRAPHS)
def test_steps_are_the_snapshots_in_order(name: str) -> None:
    view = View(WindowData(AWKWARD_GRAPHS[name]))
    steps = list(view.steps())
    assert len(steps) == view.num_snapshots
    for step, rows in zip(steps, view.split(view.x), strict=True):
        assert step.num_snapshots == 1
        assert torch.equal(step.x, rows)


def test_gather_and_scatter_state_select_present_nodes() -> None:
    step = list(view_of().steps())[1]  # nodes 0, 2 and 4
    state = torch.arange(12.0).reshape(6, 2).requires_grad_()
    assert step.gather_state(state).tolist() == [[0, 1], [4, 5], [8, 9]]
    rows = torch.full((3, 2), -1.0, requires_grad=True)
    new = step.scatter_state(state, rows)
    assert new.tolist() == [[-1, -1], [2, 3], [-1, -1], [6, 7], [-1, -1], [10, 11]]
    assert state[0, 0] == 0.0, "what was remembered before is not overwritten"
    d_state, d_rows = torch.autograd.grad(new.sum(), (state, rows))
    assert d_state[:, 0].tolist() == [0, 1, 0, 1, 0, 1]
    assert d_rows.tolist() == [[1, 1]] * 3


def test_state_of_a_snapshot_with_all_nodes_is_not_copied() -> None:
    step = list(view_of().steps())[3]
    state, rows = torch.zeros(6, 2), torch.ones(6, 2)
    assert step.gather_state(state) is state
    assert step.scatter_state(state, rows) is rows


def test_top_rows_are_weighted_sorted_and_zero_padded() -> None:
    view = view_of(replace(CHANGING, snapshots=CHANGING.snapshots[:3]))  # 4, 3 and 0 cells
    score = torch.tensor([0.5, -1.0, 2.0, 1.0, -3.0, 0.0, -2.0], dtype=torch.float64)
    x = torch.stack([score, torch.arange(1.0, 8.0, dtype=torch.float64)], 1)
    direction = torch.tensor([5.0, 0.0], dtype=torch.float64, requires_grad=True)  # its length does not matter
    tops = view.top_rows(x, direction, 4)
    assert tops.shape == (3, 4, 2)
    for top, best in zip(tops, ([2, 3, 0, 1], [5, 6, 4], []), strict=True):
        assert torch.equal(top[: len(best)], x[best] * torch.tanh(score[best])[:, None])
        assert not top[len(best) :].any()
    (learnt,) = torch.autograd.grad(tops.sum(), direction)
    assert learnt[1] != 0, "the direction learns through the weights of the rows it chooses"


def test_top_rows_breaks_ties_by_row() -> None:
    view = view_of(replace(CHANGING, snapshots=CHANGING.snapshots[:1]))
    x = torch.tensor([[1.0, 0.0], [2.0, 1.0], [2.0, 2.0], [2.0, 3.0]])
    tops = view.top_rows(x, torch.tensor([1.0, 0.0]), 3)[0]
    assert (tops[:, 1] / np.tanh(2.0)).tolist() == pytest.approx([1.0, 2.0, 3.0])


def test_snapshot_norm_uses_the_moments_of_each_snapshot() -> None:
    torch.manual_seed(0)
    view = view_of()
    x = view.x.clone().requires_grad_()
    scale, shift = (torch.randn(INPUTS, dtype=torch.float64, requires_grad=True) for _ in range(2))
    out, means, variances = view.snapshot_norm(x, scale, shift, 1e-5)
    filled = [rows for rows in view.split(x) if len(rows)]
    expected = torch.cat([(rows - rows.mean(0)) / (rows.var(0, correction=0) + 1e-5).sqrt() for rows in filled])
    expected = expected * scale + shift
    towards = torch.randn_like(out)
    for ours, theirs in zip(
        torch.autograd.grad((out * towards).sum(), (x, scale, shift)),
        torch.autograd.grad((expected * towards).sum(), (x, scale, shift)),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(means, torch.stack([rows.mean(0) for rows in filled]).detach())
    torch.testing.assert_close(variances, torch.stack([rows.var(0) for rows in filled]).detach())


def test_snapshot_norm_of_a_single_cell_is_the_shift_without_variance() -> None:
    view = View(WindowData(AWKWARD_GRAPHS["one node"]))
    out, means, variances = view.snapshot_norm(view.x, torch.ones(INPUTS), torch.full((INPUTS,), 2.0), 1e-5)
    assert out[0].tolist() == pytest.approx([2.0] * INPUTS, abs=1e-4)
    assert len(means) == len(variances) == 0


@pytest.mark.parametrize("name", sorted(AWKWARD_GRAPHS))
def test_aggregate_x_does_not_keep_features(name: str) -> None:
    apart, both = (WindowData(AWKWARD_GRAPHS[name], dtype=torch.float64) for _ in range(2))
    found, expected = View(apart).aggregate_x("gcn"), View(both).aggregate(both.x, "gcn")
    assert torch.equal(found, expected)
    assert apart.cached_aggregates == both.cached_aggregates
    assert "x" not in vars(apart)
