"""Our models with the weights of PyTorch Geometric Temporal's give its outputs and gradients.

The expected files are made by pygt/make.py. Its cells are called one snapshot at a time; ours get all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from strobe.graph import DynamicGraph, from_edges
from strobe.models import GCLSTM, TGCN, GConvGRU, Model
from strobe.models.evolvegcn import EvolveGCNH, EvolveGCNO
from strobe.models.mpnn_lstm import MPNNLSTM
from tests.models.pygt.make import (
    FILTER_SIZES,
    HERE,
    HIDDEN,
    LARGE_NODES,
    NODES,
    Graph,
    large_graph,
    large_rows,
    small_graph,
)
from tests.support.dense_models import gradients, outputs

Found = Mapping[str, Tensor]
Names = dict[str, str]
"""Their name of each parameter (or buffer) of ours."""


def load(name: str, part: str = "") -> Found:
    with np.load(HERE / f"{name}.npz") as arrays:
        return {key.removeprefix(part): torch.from_numpy(arrays[key]) for key in arrays if key.startswith(part)}


def build(graph: Graph, num_nodes: int) -> DynamicGraph:
    return from_edges(graph["edges"], weights=graph["weights"], num_nodes=num_nodes, x=graph["x"], directed=True)


def with_weights(model: Model, name: str, names: Names) -> Any:
    """The model in double precision with their parameters and buffers."""
    theirs = load(name, "before/")
    ours = model.double().state_dict()
    assert set(names) == set(ours)
    model.load_state_dict({key: theirs[names[key]].reshape(ours[key].shape) for key in ours})
    return model


def assert_same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected.reshape(found.shape), rtol=1e-9, atol=1e-10)


def assert_same_gradients(found: Found, name: str, names: Names) -> None:
    theirs = load(name, "gradient/")
    assert {names[key] for key in found} == set(theirs)
    for key, value in found.items():
        assert_same(value, theirs[names[key]])


def tgcn_names() -> Names:
    names: Names = {}
    for k, gate in enumerate("rzh"):  # reset, update, candidate
        names |= {f"gates.{k}.weights.0": f"conv_{gate}.lin.weight", f"gates.{k}.biases.0": f"conv_{gate}.bias"}
        names |= {f"gates.{k}.linear.{part}": f"linear_{gate}.{part}" for part in ("weight", "bias")}
    return names


def evolve_names(model: Model, prefix: str = "") -> Names:
    names = {"layers.0.weight": f"{prefix}initial_weight"}
    for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        names[f"layers.0.cell.{part}"] = f"{prefix}recurrent_layer.{part}_l0"
    if isinstance(model, EvolveGCNH):
        names["layers.0.direction"] = f"{prefix}pooling_layer.select.weight"
    return names | ({f"lift.{part}": f"lift.{part}" for part in ("weight", "bias")} if prefix else {})


def mpnn_names() -> Names:
    names: Names = {}
    for k in (0, 1):
        theirs = k + 1
        names |= {f"convolutions.{k}.weight": f"_convolution_{theirs}.lin.weight"}
        names |= {f"convolutions.{k}.bias": f"_convolution_{theirs}.bias"}
        for part in ("weight", "bias", "running_mean", "running_var"):
            names[f"norms.{k}.{part}"] = f"_batch_norm_{theirs}.{part}"
        for part in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
            names[f"recurrent.{k}.module.{part}"] = f"_recurrent_{theirs}.{part}"
    return names


def test_tgcn_equals_theirs() -> None:
    model = with_weights(TGCN(3, HIDDEN), "tgcn", tgcn_names())
    out = outputs(model, build(small_graph(3), NODES))
    assert_same(out, load("tgcn")["out"])
    assert_same_gradients(gradients(model, out), "tgcn", tgcn_names())


def test_tgcn_equals_theirs_on_more_nodes_than_32_bits_can_square() -> None:
    model = with_weights(TGCN(2, 3), "tgcn_large", tgcn_names())
    out = outputs(model, build(large_graph(), LARGE_NODES))
    assert_same(out[large_rows()], load("tgcn_large")["out"])
    assert_same_gradients(gradients(model, out), "tgcn_large", tgcn_names())


@pytest.mark.parametrize("kind", [EvolveGCNO, EvolveGCNH])
@pytest.mark.parametrize("lifted", [False, True])
def test_evolvegcn_equals_theirs(lifted: bool, kind: Callable[..., Model]) -> None:
    inputs = 3 if lifted else HIDDEN
    model = kind(inputs, HIDDEN, lift=lifted)
    name = type(model).__name__.lower() + ("_lifted" if lifted else "")
    names = evolve_names(model, "cell." if lifted else "")
    model = with_weights(model, name, names)
    out = outputs(model, build(small_graph(inputs), NODES))
    assert_same(out, load(name)["out"])
    assert_same_gradients(gradients(model, out), name, names)


@pytest.mark.parametrize("mode", ["training", "evaluation"])
def test_mpnn_lstm_reset_at_every_snapshot_equals_theirs(mode: str) -> None:
    """Called per snapshot theirs forgets its states; ours does where every snapshot is a window without a past."""
    name = f"mpnnlstm_{mode}"
    model = with_weights(MPNNLSTM(3, HIDDEN), name, mpnn_names()).train(mode == "training")
    graph = build(small_graph(3), NODES)
    out = torch.cat([outputs(model, graph[t : t + 1]) for t in range(len(graph))])
    assert_same(out, load(name)["out"])
    assert_same_gradients(gradients(model, out), name, mpnn_names())
    after = load(name, "after/")
    for key, value in model.named_buffers():
        assert_same(value, after[mpnn_names()[key]])


def test_mpnn_lstm_carries_states_like_theirs_within_a_window() -> None:
    """Given a window theirs shows only the last states; in training its batch would be the window, not a snapshot."""
    name = "mpnnlstm_window"
    model: nn.Module = with_weights(MPNNLSTM(3, HIDDEN), name, mpnn_names()).eval()
    out = outputs(model, build(small_graph(3), NODES), 1)  # type: ignore[arg-type]
    states = 2 * HIDDEN
    assert_same(out[-NODES:, :states].contiguous(), load(name)["out"][:, :states].contiguous())


def chebyshev_parts(name: str, part: str, gates: str, size: int) -> Found:
    """Their parameters or gradients as ours are: gates one below the other, polynomials side by side.

    Of the two biases of a gate ours is the sum, and all three have one gradient.
    """
    theirs = load(name, part)

    def joined(key: str) -> Tensor:
        rows = [torch.cat([theirs[f"{key}{gate}.lins.{k}.weight"] for k in range(size)], 1) for gate in gates]
        return torch.cat(rows)

    def biases(key: str) -> Tensor:
        return torch.cat([theirs[key.format(gate)].reshape(-1) for gate in gates])

    if name.startswith("gconvgru"):
        of_input, of_state = joined("conv_x_"), joined("conv_h_")
        first, second = biases("conv_x_{}.bias"), biases("conv_h_{}.bias")
    else:
        of_input, of_state = torch.cat([theirs[f"cell.W_{gate}"].T for gate in gates]), joined("cell.conv_")
        first, second = biases("cell.b_{}"), biases("cell.conv_{}.bias")
    if part == "gradient/":
        assert_same(first, second)
    return {"of_input": of_input, "of_state": of_state, "bias": first if part == "gradient/" else first + second}


@pytest.mark.parametrize("size", FILTER_SIZES)
@pytest.mark.parametrize(("kind", "gates"), [(GConvGRU, "rzh"), (GCLSTM, "ifoc")])
def test_chebyshev_recurrences_equal_theirs(kind: Callable[..., Model], gates: str, size: int) -> None:
    model = kind(3, HIDDEN, filter_size=size).double()
    name = f"{type(model).__name__.lower()}_{size}"
    model.load_state_dict(chebyshev_parts(name, "before/", gates, size))
    out = outputs(model, build(small_graph(3), NODES))
    assert_same(out, load(name)["out"])
    expected = chebyshev_parts(name, "gradient/", gates, size)
    for key, value in gradients(model, out).items():
        assert_same(value, expected[key])
