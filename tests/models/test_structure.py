from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.models import Block, Stack
from strobe.models.structure import GAT, GCN, SAGE, Structure, as_structure, columns_per_head
from tests.support.model_cases import AWKWARD_GRAPHS, CHANGING, INPUTS, run, with_inputs

PLAIN = with_inputs(replace(CHANGING, weighted=False).build())
UNDIRECTED = with_inputs(replace(CHANGING, weighted=False, directed=False).build())
UNWEIGHTED = {name: graph for name, graph in AWKWARD_GRAPHS.items() if not graph.weighted}


def gat(heads: int, concat: bool, inputs: int = INPUTS) -> tuple[GAT, Any]:
    """Ours and PyTorch Geometric's with the same weights."""
    ours, theirs = GAT(inputs, 4, heads=heads, concat=concat), GATConv(inputs, 4, heads=heads, concat=concat)
    assert ours.bias is not None
    nn.init.normal_(ours.bias)
    with torch.no_grad():
        pairs = [(theirs.lin.weight, ours.weight), (theirs.bias, ours.bias)]
        for target, source in [*pairs, (theirs.att_dst[0], ours.a_in), (theirs.att_src[0], ours.a_out)]:
            target.copy_(source)
    return ours.double(), theirs.double()


def sage(inputs: int = INPUTS) -> tuple[SAGE, Any]:
    ours, theirs = SAGE(inputs, 4), SAGEConv(inputs, 4)
    assert ours.bias is not None
    nn.init.normal_(ours.bias)
    with torch.no_grad():
        pairs = [(theirs.lin_l.weight, ours.w_neigh), (theirs.lin_l.bias, ours.bias)]
        for target, source in [*pairs, (theirs.lin_r.weight, ours.w_self)]:
            target.copy_(source)
    return ours.double(), theirs.double()


def both(ours: Structure, theirs: nn.Module, graph: DynamicGraph, first: nn.Module | None = None) -> list[Tensor]:
    """Outputs of both, behind a stage with parameters or on the features themselves."""
    found = []
    for stage in (ours, theirs):
        blocks = [Block(stage)] if first is None else [Block(first), Block(stage)]
        found.append(run(Stack(*blocks, width=4).double(), graph)[0])
    return found


def assert_same_gradients(a: Tensor, b: Tensor, pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    towards = torch.randn(a.shape, dtype=a.dtype, generator=torch.Generator().manual_seed(1))
    for ours, theirs in pairs:
        (left,) = torch.autograd.grad(a, ours, towards, retain_graph=True)
        (right,) = torch.autograd.grad(b, theirs, towards, retain_graph=True)
        torch.testing.assert_close(left, right.reshape(left.shape), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("heads", [1, 2, 3, 4])
@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize("graph", [PLAIN, UNDIRECTED], ids=["directed", "undirected"])
def test_gat_equals_pytorch_geometric(heads: int, concat: bool, graph: DynamicGraph) -> None:
    torch.manual_seed(heads)
    ours, theirs = gat(heads, concat)
    a, b = both(ours, theirs, graph)
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    pairs = [(ours.weight, theirs.lin.weight), (ours.a_in, theirs.att_dst), (ours.a_out, theirs.att_src)]
    assert_same_gradients(a, b, pairs)


@pytest.mark.parametrize(
    ("make", "name"),
    [*((partial(gat, 2, True), name) for name in AWKWARD_GRAPHS), *((sage, name) for name in UNWEIGHTED)],
)
def test_gat_and_sage_equal_pytorch_geometric_on_awkward_graphs(
    make: Callable[[], tuple[Structure, nn.Module]], name: str
) -> None:
    torch.manual_seed(0)
    a, b = both(*make(), AWKWARD_GRAPHS[name])
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("width", [2, 9])
@pytest.mark.parametrize("make", [lambda width: gat(2, True, width), sage])
def test_aggregation_side_does_not_change_the_result(
    width: int, make: Callable[[int], tuple[Structure, nn.Module]]
) -> None:
    torch.manual_seed(0)
    ours, theirs = make(width)
    first = GCN(INPUTS, width).double()
    a, b = both(ours, theirs, PLAIN, first)
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    assert_same_gradients(a, b, [(first.weight, first.weight)])


def test_gcn_equals_pytorch_geometric() -> None:
    ours, theirs = GCN(INPUTS, 4).double(), GCNConv(INPUTS, 4).double()
    with torch.no_grad():
        theirs.lin.weight.copy_(ours.weight)
    a, b = both(ours, theirs, with_inputs(replace(CHANGING, directed=False).build()))
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_sage_mean_uses_edge_weights() -> None:
    stage = SAGE(INPUTS, 1)
    graph = AWKWARD_GRAPHS["parallel edges"]  # node 1 reads node 0 by weights 5, 3, 4 and node 2 by 2
    with torch.no_grad():
        stage.w_self.zero_()
        stage.w_neigh.copy_(torch.tensor([[1.0, 0.0, 0.0]]))
    out, _ = run(Stack(Block(stage), width=1), graph)
    x = torch.tensor(graph[0].x)[:, 0]
    assert out[1].item() == pytest.approx(((12 * x[0] + 2 * x[2]) / 14).item())


def test_module_that_is_no_convolution_is_refused() -> None:
    with pytest.raises(OptionError, match="Linear is not a structure stage"):
        as_structure(nn.Linear(2, 2))


@pytest.mark.parametrize("heads", [0, 3, 16])
def test_heads_that_do_not_divide_the_width_are_refused(heads: int) -> None:
    with pytest.raises(OptionError, match=f"{heads} heads cannot share a width of 8"):
        columns_per_head(8, heads)


def test_cached_convolution_is_refused() -> None:
    with pytest.raises(OptionError, match="cached"):
        as_structure(GCNConv(2, 3, cached=True))
