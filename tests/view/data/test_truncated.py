"""Windows that keep the beginnings of older snapshots, beside copied subgraphs and states that are computed plainly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from strobe.batching.trapezoid import Decay
from strobe.comm import SingleRankComm
from strobe.engine.forward import detach_tree
from strobe.engine.partitioned_graph import PartitionedGraph
from strobe.graph import Degrees, DynamicGraph, from_edges
from strobe.models import MODELS, make_model
from strobe.ops.sparse.csr_kernels import reorder_rows
from strobe.ops.sparse.normalize import Norm, normalize
from strobe.ops.sparse.spmm import Sparse, spmm
from strobe.placement import Partition
from strobe.plan import Plan
from strobe.view import Carry, Owners, View
from strobe.view.data.permuted import NodeOrder, PermutedSnapshot
from strobe.view.data.truncated import CachedInputs, TruncatedData
from strobe.view.partition.truncated import TruncatedPartition, WindowSlice
from tests.support.runs import small_graph
from tests.support.trainer import OPTIONS

CHUNKS = 8
LOOKING_BACK = ("dysat", "sage")
"""Models whose time stage has no state to inherit: it looks at the cells of the window."""
EXACT = torch.float64
CPU = torch.device("cpu")
DECAYS = [Decay(1, 3, 0.2), Decay(2, 2, 0.5), Decay(3, 0, 1.0)]


@pytest.fixture(scope="module")
def graph() -> DynamicGraph:
    return small_graph()


class Windows:
    """Sliding windows of one rank, made directly."""

    def __init__(self, graph: DynamicGraph, decay: Decay, seed: int = 5) -> None:
        self.graph, self.decay = graph, decay
        place = np.random.default_rng(seed).permutation(CHUNKS)[np.arange(graph.num_nodes) % CHUNKS]
        self.order = NodeOrder(0, np.zeros(graph.num_nodes, np.int16), place)
        own = np.ones(graph.num_nodes, bool)
        inputs = CachedInputs(graph, own, EXACT, CPU, 1e9, SingleRankComm().ledger)
        self.ordered = [PermutedSnapshot(graph, t, self.order, inputs, EXACT, CPU) for t in range(len(graph))]
        self.kept = (*decay.num_chunks_by_age(CHUNKS), 0)
        self.placed = Partition.by_node(1, self.order.node_owner, len(graph))

    def shrunk(self, t: int) -> TruncatedData:
        times = self.decay.times(t, 0)
        ages = [(s, t - s) for s in times]
        blocks = tuple(
            WindowSlice(self.ordered[s], self.kept[a], self.kept[a + 1], self.decay.renormalize) for s, a in ages
        )
        owners = Owners(self.graph, self.placed, times)
        share = TruncatedPartition(SingleRankComm(), Plan().exchange, owners, np.empty(0, np.int16), CPU, slices=blocks)
        return TruncatedData(share, dtype=EXACT, device=CPU)

    def copied(self, t: int, until: int | None = None) -> Any:
        """The same cells out of whole snapshots, up to a snapshot of the window."""
        times = self.decay.times(t, 0)
        masks = [self.order.place[self.graph[s].nodes] < self.kept[t - s] for s in times]
        last = len(times) if until is None else until
        sharing = PartitionedGraph(self.graph, partition=self.placed, dtype=EXACT)
        return sharing.window_data(times[:last], masks=masks[:last], resets_state=True)

    def nodes(self, t: int) -> list[np.ndarray[Any, Any]]:
        """The nodes of each block, in its order."""
        times = self.decay.times(t, 0)
        slots = (self.ordered[s].slots[: self.ordered[s].num_own_cells(self.kept[t - s])] for s in times)
        return [self.order.nodes[each] for each in slots]


def made(model: str, graph: DynamicGraph) -> torch.nn.Module:
    torch.manual_seed(1)
    assert graph.features is not None
    name, _, update = model.partition(" ")
    options = OPTIONS.get(name, {}) | ({"update": update} if update else {})
    return make_model(name, graph.features.shape[0], hidden=4, **options).to(EXACT)


def by_cell(z: Tensor, nodes: list[Any], first: int) -> Tensor:
    """A sum over cells in which each counts in its own way, whatever the order."""
    weigh = torch.from_numpy(np.random.default_rng(0).normal(size=(64, 64)))
    cells = [(int(v), t) for t, present in enumerate(nodes, first) for v in present]
    return sum((z[row].sum() * weigh[v, t] for row, (v, t) in enumerate(cells)), torch.zeros((), dtype=EXACT))


@pytest.mark.parametrize("norm", get_args(Norm))
def test_truncated_product_equals_that_of_the_subgraph(graph: DynamicGraph, norm: Norm) -> None:
    windows = Windows(graph, Decay(1, 3, 0.2, renormalize=False))
    cells, copied = windows.shrunk(6), windows.copied(6)
    x = torch.randn(cells.num_cells, 5, dtype=EXACT)
    starts = zip(windows.nodes(6), cells.cell_ptr[:-1], strict=True)
    turn = np.concatenate([np.argsort(nodes) + start for nodes, start in starts])
    found = spmm(cells.product(norm), x)[turn]
    torch.testing.assert_close(found, spmm(copied.matrix(norm), x[turn]), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(spmm(cells.matrix(norm), x)[turn], found, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("norm", ["gcn", "mean", "mean_out", "sym"])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_weights_are_normalized_by_degrees_of_the_subgraph(norm: Norm, directed: bool, weighted: bool) -> None:
    random = np.random.default_rng(2)
    arcs = [random.integers(0, 30, (2, 90)) for _ in range(5)]
    weights = [random.normal(size=90) for _ in arcs] if weighted else None
    graph = from_edges(arcs, num_nodes=30, weights=weights, directed=directed, x=Degrees(log=True))
    windows = Windows(graph, Decay(1, 3, 0.2))
    cells = windows.shrunk(4)
    x = torch.randn(cells.num_cells, 3, dtype=EXACT)
    found = View(cells).split(spmm(cells.product(norm), x))
    for nodes, t, rows, out in zip(windows.nodes(4), range(1, 5), View(cells).split(x), found, strict=True):
        snapshot = graph[t]
        columns = np.full(snapshot.num_nodes, -1)
        columns[nodes] = np.arange(len(nodes))
        row_ptr, col, weight = reorder_rows((snapshot.row_ptr, snapshot.col, snapshot.weight), nodes, columns)
        alone = normalize(norm, row_ptr, col, weight)
        wanted = Sparse.vstack([alone], len(nodes), dtype=EXACT).times(rows.contiguous())
        torch.testing.assert_close(out, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("model", "decay"),
    [
        (model, decay)
        for k, model in enumerate([*MODELS, "roland mlp", "roland moving-average"])
        for decay in (DECAYS[0], DECAYS[1 + k % 2])
    ],
    ids=str,
)
def test_steps_equal_those_of_subgraphs_with_carried_states(graph: DynamicGraph, model: str, decay: Decay) -> None:
    """The state with which a node enters is the one after the snapshot before, as the step before computed it: here
    found by running the older part of that step's window alone."""
    windows, net = Windows(graph, replace(decay, renormalize=False)), made(model, graph)
    start, stored = None, None
    for t in range(6):
        view = View(windows.shrunk(t), start)
        found = by_cell(net(view), windows.nodes(t), view.data.local_partition.owners.times.start)  # type: ignore[union-attr]
        plain = View(windows.copied(t), stored)
        present = [np.sort(nodes) for nodes in windows.nodes(t)]
        wanted = by_cell(net(plain), present, windows.decay.times(t, 0).start)
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
        gradients = (torch.autograd.grad(each, list(net.parameters()), allow_unused=True) for each in (found, wanted))
        for first, second in zip(*gradients, strict=True):
            assert (first is None) == (second is None)
            if first is not None:
                torch.testing.assert_close(first, second, rtol=1e-9, atol=1e-10)
        start = detach_tree(view.carry)
        stored = None if model in LOOKING_BACK else inherited(windows, net, t, stored)


@torch.no_grad()
def inherited(windows: Windows, net: torch.nn.Module, t: int, stored: Carry | None) -> Carry:
    """What step t + 1 begins with, by node: a node that leaves at a snapshot has the state after it."""
    found: Any = stored
    times = windows.decay.times(t, 0)
    for k, s in enumerate(times):
        leaves = windows.order.place >= windows.kept[t - s + 1]
        leaves &= windows.order.place < windows.kept[t - s]
        view = View(windows.copied(t, k + 1), stored)
        net(view)

        def newer(old: Any, new: Tensor, leaves: Any = leaves, s: int = s) -> Any:
            if len(new) != len(leaves):  # a weight: the next window begins after this snapshot, or it does not
                return new if windows.kept[t - s + 1] == 0 else old
            return torch.where(torch.from_numpy(leaves)[:, None], new, torch.zeros_like(new) if old is None else old)

        found = _joined(newer, found, view.carry)
    carry: Carry = found
    return carry


def _joined(change: Any, old: Any, new: Any) -> Any:
    if isinstance(new, tuple | list):
        olds = [None] * len(new) if old is None else old
        return type(new)(_joined(change, a, b) for a, b in zip(olds, new, strict=True))
    return change(old, new)
