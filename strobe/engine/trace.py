"""How a model uses a view, seen by watching it once: what it pulls, how wide, how often."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from strobe.engine.inputs.model_choice import ModelChoice
from strobe.exchange import TimeEncoder
from strobe.graph import DynamicGraph
from strobe.ops.sparse.normalize import Norm
from strobe.view import ModelReads, View, WindowData


@dataclass(frozen=True)
class ViewCall:
    """One use of a view: ``pull`` (with the norm it is for) or ``over_time``, with its columns in and out.

    ``snapshot`` says which one it concerns, None for all at once. ``is_input``: what is pulled is the features, which
    every rank finds in the graph. ``kept``: what comes of it has no parameters and is computed once a run.
    ``gives_way``: the pull may wait while other snapshots compute, so that rows of each may travel by themselves.
    """

    what: str
    columns: int
    out_columns: int = 0
    norm: Norm | None = None
    snapshot: int | None = None
    is_input: bool = False
    is_cached: bool = False
    has_row_state: bool = False
    state_columns: int = 0
    can_yield: bool = False


class TracingView(View):
    """A view that notes how it is used."""

    def __init__(self, data: WindowData, calls: list[ViewCall], snapshot: int | None = None) -> None:
        super().__init__(data)
        self._calls, self._snapshot = calls, snapshot

    def pull(self, x: Tensor) -> Tensor:
        self._calls.append(ViewCall("pull", x.shape[1], norm="sum", snapshot=self._snapshot, is_input=x is self.data.x))
        return super().pull(x)

    def aggregate(self, x: Tensor, norm: Norm = "gcn") -> Tensor:
        given = self.data.is_input(x)
        call = ViewCall("pull", x.shape[1], norm=norm, snapshot=self._snapshot, is_input=given, is_cached=given)
        self._calls.append(call)
        return super().aggregate(x, norm)

    def aggregate_x(self, norm: Norm = "gcn") -> Tensor:
        return self.aggregate(self.x, norm)

    async def pull_async(self, x: Tensor) -> Tensor:
        out = self.pull(x)
        self._calls[-1] = replace(self._calls[-1], can_yield=True)
        return out

    async def aggregate_async(self, x: Tensor, norm: Norm = "gcn") -> Tensor:
        out = self.aggregate(x, norm)
        self._calls[-1] = replace(self._calls[-1], can_yield=True)
        return out

    def over_time(self, encoder: TimeEncoder, *x: Tensor) -> Tensor:
        out = super().over_time(encoder, *x)
        relays = bool(getattr(encoder, "has_row_state", False))
        wide = _row_width(self.carry[-1]) if relays else 0
        wide_in = sum(each.shape[1] for each in x)
        self._calls.append(ViewCall("over_time", wide_in, out.shape[1], has_row_state=relays, state_columns=wide))
        return out

    def steps(self) -> Iterator[View]:
        return (TracingView(cells, self._calls, t) for t, cells in enumerate(self.data.single))

    def gather_state(self, state: Tensor) -> Tensor:
        self._calls.append(ViewCall("gather_state", state.shape[1], snapshot=self._snapshot))
        return super().gather_state(state)


@torch.no_grad()
def trace_view_calls(model: nn.Module, graph: DynamicGraph) -> list[ViewCall]:
    """The view calls of a pass over a whole graph, in order."""
    calls: list[ViewCall] = []
    was = model.training
    model.eval()
    model(TracingView(WindowData(graph), calls))
    model.train(was)
    return calls


def sparse_products(choice: ModelChoice, graph: DynamicGraph) -> int:
    """How far a model reads along edges, at most: its sparse products in one snapshot."""
    return sum(call.what == "pull" for call in trace_view_calls(_make_model(choice, graph), graph[:1]))


def traced_call_order(choice: ModelChoice, graph: DynamicGraph) -> list[str]:
    """What a model does with one snapshot, in order: ``pull``, ``over_time``, ``gather_state``."""
    return [call.what for call in trace_view_calls(_make_model(choice, graph), graph[:1])]


@torch.no_grad()
def model_reads(choice: ModelChoice, graph: DynamicGraph) -> ModelReads:
    """What a model reads of a graph. Its products in one snapshot may lead one after the other; that many hops are
    enough."""
    calls: list[ViewCall] = []
    cells = WindowData(graph[:1])
    _make_model(choice, graph).eval()(TracingView(cells, calls))
    hops = sum(call.what == "pull" and not call.is_cached for call in calls)
    steps = any(call.snapshot is not None for call in calls)
    return ModelReads(inputs=cells.cached_aggregates, norms=cells.cached_norms, hops=hops, steps=steps)


def _make_model(choice: ModelChoice, graph: DynamicGraph) -> nn.Module:
    """A model whose weights do not matter."""
    assert graph.features is not None
    with torch.random.fork_rng():
        return choice.make(graph.features.shape[0])


def _row_width(state: object) -> int:
    """Columns of a state that has a row per slot."""
    return sum(leaf[:1].numel() for leaf in pytree.tree_leaves(state) if isinstance(leaf, Tensor))
