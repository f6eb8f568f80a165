from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from strobe.errors import OptionError, UnknownNameError
from strobe.models.mpnn_lstm import MPNNLSTM, BatchNorm, CellNorm
from strobe.view import View, WindowData
from tests.models.test_gat_lstm import dense_lstm
from tests.support.dense_models import (
    PerNode,
    Reference,
    adjacency,
    assert_equals_reference,
    outputs,
    randomised,
    with_features,
)
from tests.support.graphs import AWKWARD, PlainGraph

NORMS = pytest.mark.parametrize("norm", ["batch", "layer", "none"])
Norm = Callable[[Tensor], Tensor]


def dense(model: MPNNLSTM, norms: list[Norm]) -> Reference:
    """Convolutions and norms of one snapshot after the other, then LSTMs whose states wait for their node."""
    convolutions: list[Any] = list(model.convolutions)
    stack: list[Any] = list(model.recurrent)
    hidden = len(convolutions[0].weight)

    def run(plain: PlainGraph, x: list[Tensor]) -> list[Tensor]:
        states = [(PerNode(hidden), PerNode(hidden)) for _ in stack]
        said = []
        for t, features in enumerate(x):
            rows, convolved = features, []
            for convolution, norm in zip(convolutions, norms, strict=True):
                rows = norm(torch.relu(adjacency(plain, t) @ rows @ convolution.weight.T + convolution.bias))
                convolved.append(rows)
            rows, shown = torch.cat(convolved, 1), []
            for recurrent, (h, c) in zip(stack, states, strict=True):
                nodes = plain.present(t)
                rows, fresh = dense_lstm(recurrent.module, rows, h.of(nodes), c.of(nodes))
                h.put(nodes, rows)
                c.put(nodes, fresh)
                shown.append(rows)
            said.append(torch.cat([*shown, features], 1))
        return said

    return run


def slow_norms(model: MPNNLSTM, name: CellNorm) -> list[Norm]:
    """Batch moments over the rows of the snapshot, layer moments over its columns."""
    modules: list[Any] = list(model.norms)

    def moments(module: Any, dim: int) -> Norm:
        def norm(x: Tensor) -> Tensor:
            if not len(x):
                return x
            mean, variance = x.mean(dim, keepdim=True), x.var(dim, correction=0, keepdim=True)
            normed: Tensor = (x - mean) / torch.sqrt(variance + 1e-5) * module.weight + module.bias
            return normed

        return norm

    if name == "none":
        return [lambda x: x] * len(model.norms)
    return [moments(m, 0) if name == "batch" else moments(m.norm, 1) for m in modules]


@NORMS
@pytest.mark.parametrize("plain", AWKWARD.values(), ids=AWKWARD)
def test_mpnn_lstm_equals_the_dense_formulas(plain: PlainGraph, norm: CellNorm) -> None:
    model = randomised(MPNNLSTM(3, 4, norm=norm))
    assert_equals_reference(model, dense(model, slow_norms(model, norm)), plain)


@NORMS
@pytest.mark.parametrize(("layers", "stacked"), [(1, 1), (3, 2), (2, 3)])
def test_any_number_of_convolutions_and_lstms(layers: int, stacked: int, norm: CellNorm) -> None:
    model = randomised(MPNNLSTM(3, 2, layers=layers, stacked=stacked, norm=norm))
    assert model.width == 2 * stacked + 3
    assert_equals_reference(model, dense(model, slow_norms(model, norm)), AWKWARD["isolated nodes"])


def torch_norms(model: MPNNLSTM) -> list[nn.BatchNorm1d]:
    """torch's own modules with the parameters and running moments of the model's."""
    norms = []
    for ours in model.norms:
        assert isinstance(ours, BatchNorm)
        theirs = nn.BatchNorm1d(len(ours.weight)).double()
        theirs.load_state_dict(ours.state_dict(), strict=False)
        norms.append(theirs)
    return norms


def running(module: Any) -> Norm:
    mean, variance = module.running_mean, module.running_var
    return lambda x: (x - mean) / torch.sqrt(variance + 1e-5) * module.weight + module.bias


@pytest.mark.parametrize("name", ["isolated nodes", "a node that leaves and returns", "undirected parallel edges"])
def test_running_moments_equal_torch_called_per_snapshot(name: str) -> None:
    model = randomised(MPNNLSTM(3, 4))
    theirs = torch_norms(model)
    graph, x = with_features(AWKWARD[name])
    with torch.no_grad():
        outputs(model, graph, 1) if len(graph) > 1 else outputs(model, graph)
        dense(model, list(theirs))(AWKWARD[name], x)
    for ours, norm in zip(model.norms, theirs, strict=True):
        torch.testing.assert_close(ours.running_mean, norm.running_mean, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(ours.running_var, norm.running_var, rtol=1e-9, atol=1e-12)


def test_evaluation_uses_running_moments_without_updating_them() -> None:
    model = randomised(MPNNLSTM(3, 4))
    graph, _ = with_features(AWKWARD["isolated nodes"])
    outputs(model, graph)
    before = {name: value.clone() for name, value in model.named_buffers()}
    model.eval()
    norms = [running(norm) for norm in model.norms]
    assert_equals_reference(model, dense(model, norms), AWKWARD["features and labels per cell"], 1)
    assert all(torch.equal(value, before[name]) for name, value in model.named_buffers())


def test_snapshots_of_at_most_one_cell_do_not_update_running_moments() -> None:
    model = randomised(MPNNLSTM(3, 4))
    for name in ("one node", "only empty snapshots", "no snapshots"):
        outputs(model, with_features(AWKWARD[name])[0])
    fresh = dict(MPNNLSTM(3, 4).double().named_buffers())
    assert all(torch.equal(value, fresh[name]) for name, value in model.named_buffers())


def test_recomputation_updates_running_moments_once() -> None:
    graph, _ = with_features(AWKWARD["isolated nodes"])
    cells = WindowData(graph, dtype=torch.float64)
    once, again = (randomised(MPNNLSTM(3, 4)) for _ in range(2))
    once(View(cells)).sum().backward()
    checkpoint(lambda: again(View(cells)), use_reentrant=False).sum().backward()
    counted = dict(once.named_buffers())
    assert not torch.equal(counted["norms.0.running_mean"], torch.zeros(4, dtype=torch.float64))
    assert all(torch.equal(value, counted[name]) for name, value in again.named_buffers())


def test_dropout_acts_in_training_only() -> None:
    graph, _ = with_features(AWKWARD["isolated nodes"])
    model = randomised(MPNNLSTM(3, 4, dropout=0.5))
    torch.manual_seed(0)
    assert not torch.equal(outputs(model, graph), outputs(model, graph))
    model.eval()
    assert torch.equal(outputs(model, graph), outputs(model, graph))


def test_invalid_options_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'batch'"):
        MPNNLSTM(3, norm="bach")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="less than 1, not 1"):
        MPNNLSTM(3, dropout=1.0)
