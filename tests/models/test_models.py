"""The contract of every registered model."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from strobe.engine.forward import num_examples, window_examples, window_loss
from strobe.engine.windows import Segment, Window
from strobe.errors import OptionError, UnknownNameError
from strobe.graph import DynamicGraph
from strobe.graph.features import PerCell
from strobe.models import MODELS, Model, describe_model, make_model
from strobe.ops.dense.readout import readout_reference
from strobe.tasks import NodeRegression
from strobe.view import View, WindowData
from tests.support.graphs import PlainGraph, PlainSnapshot
from tests.support.model_cases import AWKWARD_GRAPHS, CHANGING, INPUTS, assert_same_with_gradients, run, with_inputs

HIDDEN = 8

EVOLVES = {"evolvegcn-o", "evolvegcn-h"}
"""Models whose weights take a step with every snapshot, an empty one too: how much time has gone by before a node
appears, or while it pauses, shows in its output."""

COUNTS_SNAPSHOTS = {"dysat", "sage"}
"""Models whose time stage reads how many snapshots lie between two cells: a pause is not the same as none."""


def make(name: str, *, train: bool = True, dtype: torch.dtype = torch.float64) -> Model:
    """The model with weights that are the same each time, without chance in its passes."""
    torch.manual_seed(0)
    options = {"hidden": HIDDEN} | ({"dropout": 0.0} if "dropout" in describe_model(name).options else {})
    return make_model(name, INPUTS, **options).to(dtype).train(train)


def joined(graph: DynamicGraph, model: nn.Module, cuts: Sequence[int]) -> Tensor:
    """Embeddings of a graph read in several windows, each going on where the one before stopped."""
    outputs, carry = [], None
    for start, stop in zip([0, *cuts], [*cuts, len(graph)], strict=True):
        out, carry = run(model, graph[start:stop], carry)
        outputs.append(out)
    return torch.cat(outputs)


def by_cell(graph: DynamicGraph, out: Tensor) -> dict[tuple[int, int], list[float]]:
    """The output of every (t, node)."""
    cells = [(snapshot.t, node) for snapshot in graph for node in snapshot.nodes.tolist()]
    return dict(zip(cells, out.tolist(), strict=True))


# What comes out.


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("case", AWKWARD_GRAPHS)
@pytest.mark.parametrize("mode", ["train", "evaluate"])
def test_outputs_on_awkward_graphs_are_finite(name: str, case: str, mode: Literal["train", "evaluate"]) -> None:
    model, graph = make(name, train=mode == "train"), AWKWARD_GRAPHS[case]
    out, _ = run(model, graph)
    assert out.shape == (graph.num_cells, model.width)
    assert out.isfinite().all()
    if not out.requires_grad:  # allowed only where there is nothing to learn from
        assert graph.num_cells == 0
        return
    out.sum().backward()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_empty_window_changes_nothing(name: str) -> None:
    graph, model = with_inputs(CHANGING.build()), make(name)
    torch.testing.assert_close(joined(graph, model, [1, 1, 4]), joined(graph, model, [1, 4]), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("name", "options", "history"),
    [("gcn", {}, 0), ("sage", {"span": 3}, 2), ("dysat", {"span": 2, "time_layers": 2}, 2), ("dysat", {}, None)],
)
def test_an_embedding_depends_on_the_history_of_the_model_alone(
    name: str, options: dict[str, Any], history: int | None
) -> None:
    torch.manual_seed(0)
    graph, model = with_inputs(CHANGING.build()), make_model(name, INPUTS, hidden=HIDDEN, **options).double().eval()
    assert model.history == history
    last, whole = graph[len(graph) - 1].num_nodes, run(model, graph)[0]
    short, _ = run(model, graph[len(graph) - 1 - (history or 0) :])
    assert (history is not None) == torch.allclose(short[-last:], whole[-last:], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_deterministic_and_single_precision_is_close_to_double(name: str) -> None:
    graph, dtypes = with_inputs(CHANGING.build()), (torch.float32, torch.float32, torch.float64)
    single, again, double = (run(make(name, dtype=dtype), graph)[0] for dtype in dtypes)
    assert torch.equal(single, again)
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
    torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_gets_a_gradient(name: str) -> None:
    model = make(name)
    out, _ = run(model, with_inputs(CHANGING.build()))
    (out * torch.randn_like(out)).sum().backward()
    idle = [what for what, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    assert idle == []


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_equivariant_to_node_ids(name: str) -> None:
    """Node v becomes order[v]; the inputs move along."""
    order = [3, 0, 5, 1, 2, 4]
    graph = with_inputs(CHANGING.build())
    shots = [
        replace(
            shot,
            nodes=[order[v] for v in shot.nodes],
            edges=[(order[u], order[v], w) for u, v, w in shot.edges],
            x=None,
        )
        for shot in CHANGING.snapshots
    ]
    moved = replace(CHANGING, snapshots=shots).build()
    rows = np.empty((graph.num_cells, INPUTS), np.float32)
    for before, after in zip(graph, moved, strict=True):
        at = np.searchsorted(after.nodes, np.array(order)[before.nodes])
        rows[int(moved.cell_ptr[after.t]) + at] = before.x
    model = make(name)
    moved = moved.with_features(PerCell(rows))
    ours, theirs = by_cell(graph, run(model, graph)[0]), by_cell(moved, run(model, moved)[0])
    for (t, node), row in ours.items():
        assert theirs[t, order[node]] == pytest.approx(row, rel=1e-9, abs=1e-12)


# Time.


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("cuts", [[3], [1, 2, 4], [1, 2, 3, 4, 5]])
def test_consecutive_windows_equal_one_window(name: str, cuts: list[int]) -> None:
    graph, model = with_inputs(CHANGING.build()), make(name)
    whole, _ = run(model, graph)
    assert_same_with_gradients(joined(graph, model, cuts), whole, model)


@pytest.mark.parametrize("name", MODELS)
def test_no_cell_reads_the_future(name: str) -> None:
    graph, model = with_inputs(CHANGING.build()), make(name)
    whole, _ = run(model, graph)
    begun, _ = run(model, graph[:4])
    torch.testing.assert_close(whole[: len(begun)], begun, rtol=1e-9, atol=1e-12)


def alone_in_time(times: Sequence[int], length: int, company: bool) -> DynamicGraph:
    """Node 0, without edges, at some snapshots; with company, node 1 is there at all of them."""
    shots = [
        PlainSnapshot(([0] if t in times else []) + ([1] if company else []), [], t)
        for t in range(length)
        if company or t in times
    ]
    graph = PlainGraph(2, shots).build()
    own, other = (np.random.default_rng(seed).normal(size=(length, INPUTS)) for seed in (1, 2))
    rows, seen = [], 0
    for snapshot in graph:
        for node in snapshot.nodes.tolist():
            rows.append(own[seen] if node == 0 else other[snapshot.t])
            seen += node == 0
    return graph.with_features(PerCell(np.array(rows, np.float32)))


@pytest.mark.parametrize("name", sorted(set(MODELS) - EVOLVES))
def test_late_node_starts_from_the_initial_state(name: str) -> None:
    """In evaluation, where not even a normalisation over a snapshot joins nodes that have no edge."""
    model = make(name, train=False)
    fresh, _ = run(model, alone_in_time([0, 1], 2, company=False))
    graph = alone_in_time([2, 3], 4, company=True)
    rows = by_cell(graph, run(model, graph)[0])
    torch.testing.assert_close(torch.tensor([rows[2, 0], rows[3, 0]], dtype=fresh.dtype), fresh, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", sorted(set(MODELS) - EVOLVES - COUNTS_SNAPSHOTS))
def test_absent_node_keeps_its_state(name: str) -> None:
    model = make(name, train=False)
    straight, _ = run(model, alone_in_time([0, 1, 2], 3, company=False))
    graph = alone_in_time([0, 3, 5], 6, company=True)
    rows = by_cell(graph, run(model, graph)[0])
    paused = torch.tensor([rows[0, 0], rows[3, 0], rows[5, 0]], dtype=straight.dtype)
    torch.testing.assert_close(paused, straight, rtol=1e-9, atol=1e-12)


# Training.


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sizes", [[2, 2], [1, 2, 1], [1, 1, 1, 1]])
def test_recomputed_segments_give_the_same_loss_gradients_and_buffers(name: str, sizes: list[int]) -> None:
    problem = NodeRegression(train=0.7, validation=0.1).bind(with_inputs(CHANGING.build()))

    def trained(sizes: list[int]) -> list[Tensor | None]:
        model = make(name)
        torch.manual_seed(1)
        head = problem.head(model.width).double()
        stops = np.cumsum(sizes).tolist()
        times = [range(stop - size, stop) for size, stop in zip(sizes, stops, strict=True)]
        window: Window = tuple(
            Segment(part, WindowData(problem.graph[part.start : part.stop], dtype=torch.float64)) for part in times
        )
        questions = window_examples(problem, window, 0)
        loss, _ = window_loss(model, head, problem, window, None, questions)
        number = num_examples(questions)
        assert number > 0
        loss.backward()
        learnt = [parameter.grad for parameter in (*model.parameters(), *head.parameters())]
        return [loss.detach() / number, *learnt, *model.buffers()]

    torch.testing.assert_close(trained(sizes), trained([sum(sizes)]), rtol=1e-9, atol=1e-12)


# The registry.


@pytest.mark.parametrize("name", MODELS)
def test_describe_model_gives_summary_and_defaults(name: str) -> None:
    info = describe_model(name)
    assert info.name == name
    assert 20 < len(info.summary) <= 120
    assert "\n" not in info.summary
    assert "inputs" not in info.options
    assert info.options["hidden"] == 32
    assert inspect.Parameter.empty not in info.options.values()
    assert isinstance(make_model(name, INPUTS, **info.options), MODELS[name])


def test_model_summaries_are_distinct() -> None:
    assert len({describe_model(name).summary for name in MODELS}) == len(MODELS)


@pytest.mark.parametrize(
    ("name", "options", "word"),
    [
        ("dcrn", {}, "'dcrnn'"),
        ("dcrnn", {"hiden": 3}, "'hidden'"),
        ("dcrnn", {"inputs": 3}, "'inputs'"),
        ("dcrnn", {"hops": 2.5}, "whole number"),
        ("dcrnn", {"hops": 0}, "hops must be at least 1, not 0"),
        ("tgcn", {"layers": 0}, "layers"),
        ("tgcn", {"layers": 10**9}, "layers"),
        ("tgcn", {"hidden": 10**12}, "hidden"),
        ("tgcn", {"hidden": 10**7}, "hidden"),
        ("evolvegcn-o", {"hidden": 0}, "hidden"),
        ("wd-gcn", {"layers": -1}, "not -1"),
        ("gat-lstm", {"heads": 0}, "heads"),
        ("gat-lstm", {"hidden": 6}, "4 heads"),
        ("dysat", {"time_layers": 0}, "time_layers"),
        ("dysat", {"span": 0}, "span"),
        ("mpnn-lstm", {"stacked": 0}, "stacked"),
        ("sage", {"span": 0}, "span"),
        ("sage", {"heads": 0}, "heads"),
        ("roland", {"layers": 0}, "layers"),
        ("roland", {"update": "lstm"}, "moving-average"),
        ("gconv-gru", {"filter_size": 0}, "filter_size"),
        ("gc-lstm", {"filter_size": 99}, "filter_size"),
        ("gcn", {"layers": 0}, "layers"),
    ],
    ids=str,
)
def test_invalid_names_and_options_are_refused(name: str, options: dict[str, Any], word: str) -> None:
    with pytest.raises((OptionError, UnknownNameError), match=word):
        make_model(name, 2, **options)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_forward_readout_is_a_readout_of_the_embeddings(name: str) -> None:
    model, graph = make(name, train=False), with_inputs(CHANGING.build())
    head = [torch.randn(2, model.width).double().requires_grad_(), torch.randn(2).double().requires_grad_()]
    results = []
    for fused in (True, False):
        view = View(WindowData(graph, dtype=torch.float64))
        said = model.forward_readout(view, *head) if fused else readout_reference(model(view), *head)
        loss = (said * torch.arange(said.numel()).view_as(said)).sum()
        results.append([said, *torch.autograd.grad(loss, [*head, *model.parameters()], allow_unused=True)])
    for found, expected in zip(*results, strict=True):
        assert (found is None) == (expected is None)
        if found is not None:
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
