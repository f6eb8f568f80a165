from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GraphConv, SAGEConv

from strobe.errors import OptionError, UnknownNameError
from strobe.exchange import Exchange, Halo, Overlapped, Relay, Shuffle
from strobe.exchange.relay import legs
from strobe.models import ROLAND, Block, make_model
from strobe.models.roland import ConvolutionName, GRUUpdate, Message, MLPUpdate, Update
from strobe.models.structure import GAT, GCN, SAGE, Convolution
from strobe.view import View, WindowData
from tests.exchange.test_exact import PLACED, run_on_one_rank, run_on_ranks
from tests.support.dense import snapshot_matrix
from tests.support.dense_models import PerNode, adjacency, assert_equals_reference, outputs, randomised, with_features
from tests.support.graphs import AWKWARD, PlainGraph, PlainSnapshot
from tests.support.model_cases import CHANGING, INPUTS, with_inputs

CONVOLUTIONS: tuple[ConvolutionName, ...] = get_args(ConvolutionName)
UPDATES: tuple[Update, ...] = get_args(Update)


def dense_convolution(layer: nn.Module, plain: PlainGraph, t: int, x: Tensor) -> Tensor:
    """One convolution without its ReLU."""
    if isinstance(layer, GCN):
        assert layer.bias is not None
        return adjacency(plain, t) @ x @ layer.weight.t() + layer.bias
    if isinstance(layer, SAGE):
        mean = torch.from_numpy(snapshot_matrix("mean", plain, t)) @ x
        assert layer.bias is not None
        return x @ layer.w_self.t() + mean @ layer.w_neigh.t() + layer.bias
    assert isinstance(layer, GAT)
    assert layer.bias is not None
    h, loops = x @ layer.weight.t(), snapshot_matrix("loops", plain, t)
    rows = [layer.bias[None][:0]]
    for v, counts in enumerate(loops):
        read = [u for u, count in enumerate(counts) for _ in range(int(count))]
        scores = torch.stack([layer.a_in[0] @ h[v] + layer.a_out[0] @ h[u] for u in read])
        rows.append((nn.functional.leaky_relu(scores, layer.slope).softmax(0) @ h[read] + layer.bias)[None])
    return torch.cat(rows)


class DenseLayer:
    """A layer with the states of its nodes and the arcs that they have read."""

    def __init__(self, block: Block, width: int) -> None:
        assert isinstance(block.structure, Message)
        self.convolution, self.update = block.structure.convolution, block.time
        self.states, self.arcs = PerNode(width), dict[int, int]()

    def __call__(self, plain: PlainGraph, t: int, x: Tensor) -> Tensor:
        nodes, update = plain.present(t), self.update
        x, h = torch.relu(dense_convolution(self.convolution, plain, t, x)), self.states.of(nodes)
        if isinstance(update, GRUUpdate):
            gates = zip(update.of_input.chunk(3), update.of_state.chunk(3), update.bias.chunk(3), strict=True)
            (wr, ur, br), (wz, uz, bz), (wc, uc, bc) = gates
            r, z = torch.sigmoid(x @ wr.t() + h @ ur.t() + br), torch.sigmoid(x @ wz.t() + h @ uz.t() + bz)
            new = z * h + (1 - z) * torch.tanh(x @ wc.t() + (r * h) @ uc.t() + bc)
        elif isinstance(update, MLPUpdate):
            inner, _, outer = update.mlp
            assert isinstance(inner, nn.Linear)
            assert isinstance(outer, nn.Linear)
            new = torch.relu(torch.cat([h, x], 1) @ inner.weight.t() + inner.bias) @ outer.weight.t() + outer.bias
        else:
            rows = [x[:0]]
            for v, (old, row) in enumerate(zip(h, x, strict=True)):
                past = self.arcs.get(nodes[v], 0)
                now = past + sum(reader == nodes[v] for reader, _, _ in plain.arcs(t))
                keep = past / now if now else 0.0
                rows.append((keep * old + (1 - keep) * row)[None])
                self.arcs[nodes[v]] = now
            new = torch.cat(rows)
        self.states.put(nodes, new)
        return new


def reference(model: ROLAND, plain: PlainGraph, x: list[Tensor]) -> list[Tensor]:
    """Layer by layer in each snapshot, node by node."""
    layers = [DenseLayer(block, model.width) for block in model.blocks if isinstance(block, Block)]
    found = []
    for t, rows in enumerate(x):
        rows = torch.relu(rows @ model.preprocess.weight.t() + model.preprocess.bias)
        for layer in layers:
            rows = layer(plain, t, rows)
        found.append(rows)
    return found


@pytest.mark.parametrize(("convolution", "update"), list(product(CONVOLUTIONS, UPDATES)))
@pytest.mark.parametrize(("directed", "layers", "cuts"), [(True, 2, ()), (False, 3, (2, 3)), (True, 1, (1,))])
def test_outputs_and_gradients_equal_dense_layers(
    convolution: ConvolutionName, update: Update, directed: bool, layers: int, cuts: tuple[int, ...]
) -> None:
    model = randomised(ROLAND(3, 4, layers=layers, convolution=convolution, update=update))
    assert_equals_reference(model, partial(reference, model), replace(CHANGING, directed=directed), *cuts)


@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.parametrize("update", UPDATES)
def test_outputs_on_awkward_graphs_equal_dense_layers(name: str, update: Update) -> None:
    model = randomised(ROLAND(3, 4, update=update))
    assert_equals_reference(model, partial(reference, model), AWKWARD[name])


def test_moving_average_weighs_snapshots_by_the_arcs_a_node_reads() -> None:
    """Node 0 reads 1, 0, 3 and 4 arcs: its state is the mean of what the convolution gave, weighted by these."""
    counts = [1, 0, 3, 4]
    shots = [PlainSnapshot([0, 1, 2], [(1 + k % 2, 0, 1.0) for k in range(n)], t) for t, n in enumerate(counts)]
    graph, _ = with_features(PlainGraph(3, shots))
    model = randomised(ROLAND(3, 4, layers=1, update="moving-average"))
    view = View(WindowData(graph, dtype=torch.float64))
    x = torch.relu(view.x @ model.preprocess.weight.t() + model.preprocess.bias)
    block: Any = model.blocks[0]
    message = block.structure(view, x)
    assert message[::3, -1].tolist() == counts
    seen = message[::3, :-1]
    for t in range(4):
        weights = torch.tensor(counts[: t + 1]).double()
        wanted = (weights[:, None] * seen[: t + 1]).sum(0) / weights.sum()
        torch.testing.assert_close(outputs(model, graph)[3 * t], wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("convolution", "given", "names"),
    [
        ("sage", SAGEConv, {"w_self": "lin_r.weight", "w_neigh": "lin_l.weight", "bias": "lin_l.bias"}),
        ("gat", GATConv, {"weight": "lin.weight", "a_in": "att_dst", "a_out": "att_src", "bias": "bias"}),
        ("gcn", GCNConv, {"weight": "lin.weight", "bias": "bias"}),
    ],
)
@pytest.mark.parametrize("update", UPDATES)
def test_convolutions_of_pytorch_geometric_give_the_same(
    convolution: ConvolutionName, given: Callable[[int, int], nn.Module], names: dict[str, str], update: Update
) -> None:
    graph, _ = with_features(replace(CHANGING, weighted=False, directed=False))
    model = randomised(ROLAND(3, 4, convolution=convolution, update=update))
    other = ROLAND(3, 4, convolution=given, update=update).double()
    weights = {}
    for key, value in model.state_dict().items():
        before, _, name = key.rpartition(".convolution.")
        key = f"{before}.convolution.convolution.{names[name]}" if before else key
        weights[key] = value.reshape(other.state_dict()[key].shape)
    other.load_state_dict(weights)
    torch.testing.assert_close(outputs(other, graph), outputs(model, graph), rtol=1e-9, atol=1e-9)


def test_any_convolution_of_pytorch_geometric_can_be_given() -> None:
    graph = with_inputs(CHANGING.build())
    model = ROLAND(INPUTS, 4, convolution=GraphConv)
    layers = [each for each in model.modules() if isinstance(each, Convolution)]
    assert [type(layer.convolution) for layer in layers] == [GraphConv, GraphConv]
    out = model(View(WindowData(graph)))
    assert (out.shape, bool(out.isfinite().all())) == ((graph.num_cells, 4), True)


def test_unknown_convolutions_and_updates_are_refused() -> None:
    with pytest.raises(OptionError, match="gcn or sage or gat or a function, not 'gcm'"):
        make_model("roland", 2, convolution="gcm")
    with pytest.raises(OptionError, match="gru or mlp or moving-average, not 'grew'"):
        make_model("roland", 2, update="grew")
    with pytest.raises(UnknownNameError, match="'gcn'"):
        ROLAND(2, convolution="gcm")  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="'gru'"):
        ROLAND(2, update="grew")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="module"):
        ROLAND(2, convolution=lambda a, b: a + b)  # type: ignore[arg-type, return-value]
    with pytest.raises(OptionError, match="Linear is not a structure stage"):
        ROLAND(2, convolution=nn.Linear)


@pytest.mark.parametrize("place", PLACED)
@pytest.mark.parametrize(("convolution", "update"), [("sage", "mlp"), ("gat", "moving-average"), ("gcn", "gru")])
def test_ranks_equal_one_rank(
    convolution: ConvolutionName, update: Update, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legs, "MIN_CELLS", 1)
    graph, model = with_inputs(CHANGING.build()), randomised(ROLAND(INPUTS, 4, convolution=convolution, update=update))
    whole, cut = [0, 6], [0, 2, 3, 6]
    relay, shuffle = Relay(pipeline_groups=2), Shuffle()
    cases: Any = ((2, Halo(), relay, whole), (3, Overlapped(), shuffle, cut), (3, Halo(), relay, cut))
    for num_ranks, structure, time, cuts in cases:
        expected = run_on_one_rank(lambda: deepcopy(model), graph, cuts)
        partition = PLACED[place](graph, num_ranks, num_ranks)
        found = run_on_ranks(lambda: deepcopy(model), graph, cuts, partition, Exchange(structure=structure, time=time))
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("update", UPDATES)
def test_bfloat16_is_close_to_double(update: Update) -> None:
    graph = with_inputs(CHANGING.build())
    torch.manual_seed(0)
    model = ROLAND(INPUTS, 8, update=update)
    wide = deepcopy(model).double()(View(WindowData(graph, dtype=torch.float64)))
    data = WindowData(graph, dtype=torch.bfloat16)
    with data.autocast():
        narrow = model(View(data))
    assert narrow.dtype == torch.bfloat16
    torch.testing.assert_close(narrow.double(), wide, rtol=0.1, atol=0.05)
