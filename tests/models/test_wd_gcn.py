from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from strobe.graph import DynamicGraph
from strobe.models.structure import GCN
from strobe.models.wd_gcn import WDGCN
from tests.support.dense import snapshot_matrix
from tests.support.graphs import PlainGraph
from tests.support.model_cases import CHANGING, INPUTS, assert_same_with_gradients, run, with_inputs


def reference(model: WDGCN, plain: PlainGraph, graph: DynamicGraph) -> Tensor:
    """Dense convolutions per snapshot, then torch's LSTM cell node by node."""
    module = model.time.module
    cell = nn.LSTMCell(model.width, model.width).double()
    parameters: dict[str, Tensor] = {name.removesuffix("_l0"): value for name, value in module.named_parameters()}
    state: dict[int, tuple[Tensor, Tensor]] = {}
    outputs = []
    for t, snapshot in enumerate(graph):
        x = torch.tensor(snapshot.x, dtype=torch.float64)
        propagation = torch.from_numpy(snapshot_matrix("gcn", plain, t))
        for convolution in model.convolutions:
            assert isinstance(convolution, GCN)
            assert convolution.bias is not None
            x = torch.relu(propagation @ x @ convolution.weight.t() + convolution.bias)
        for row, node in enumerate(plain.present(t)):
            before = tuple(part[None] for part in state[node]) if node in state else None
            h, c = torch.func.functional_call(cell, parameters, (x[row : row + 1], before))
            state[node] = (h[0], c[0])
            outputs.append(h[0])
    return torch.stack(outputs)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("directed", [True, False])
def test_outputs_and_gradients_equal_dense_convolutions_and_an_lstm_per_node(layers: int, directed: bool) -> None:
    torch.manual_seed(0)
    plain = replace(CHANGING, directed=directed)
    graph = with_inputs(plain.build())
    model = WDGCN(INPUTS, 4, layers=layers).double()
    out, _ = run(model, graph)
    assert_same_with_gradients(out, reference(model, plain, graph), model)
