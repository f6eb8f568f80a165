"""Batches of pairs against the decoder with a row per pair, in the same engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from strobe.comm import SingleRankComm
from strobe.engine.examples import evaluation_examples, training_examples
from strobe.engine.forward import apply_head, gather_ends
from strobe.engine.partitioned_graph import PartitionedGraph
from strobe.engine.windows import Segment
from strobe.graph import DynamicGraph, from_edges
from strobe.tasks import LinkPrediction
from strobe.tasks.heads import PairDecoder
from strobe.tasks.link_prediction import LinkProblem
from strobe.tasks.pair_batch import NodeInputs, PairBatch
from strobe.view import View

WIDTH = 6


def graph(*, directed: bool) -> DynamicGraph:
    """Nodes come late and leave; an empty snapshot, self loops and parallel edges."""
    rng = np.random.default_rng(5)
    edges = [rng.integers(0, 6 + t, (2, 14)) for t in range(9)]
    edges[2], edges[4] = edges[2][:, :0], np.concatenate([edges[4], edges[4][:, :3], np.array([[1], [1]])], 1)
    nodes = [np.unique(np.append(each, [0, t])) for t, each in enumerate(edges)]
    return from_edges(edges, num_nodes=17, nodes=nodes, directed=directed)


class RowPerPair(LinkProblem):
    """The same pairs with a row of features each."""

    encodes_nodes_once = False


def problems(*, directed: bool, **options: Any) -> list[LinkProblem]:
    task, whole = LinkPrediction(negatives=3, eval_negatives=4, **options), graph(directed=directed)
    return [kind(task, whole, 1, None) for kind in (LinkProblem, RowPerPair)]


def random_head(problem: LinkProblem) -> PairDecoder:
    torch.manual_seed(2)
    head = problem.head(WIDTH).double()
    assert isinstance(head, PairDecoder)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return head


def outcomes(problem: LinkProblem, head: PairDecoder, *, training: bool) -> list[Tensor]:
    """Predictions with offset, loss, and gradients of the embeddings and of the head."""
    segment = Segment(
        range(8), PartitionedGraph(problem.graph, None, SingleRankComm(), dtype=torch.float64).window_data(range(8))
    )
    found = (
        [training_examples(problem, segment, range(1, 6), 0)]
        if training
        else list(evaluation_examples(problem, segment, range(6, 8)))
    )
    z = torch.randn(segment.data.num_cells, WIDTH, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    z.requires_grad_()
    outcome = []
    for local in found:
        assert local is not None
        ends = gather_ends(View(segment.data, None), head, z, local)
        predictions = apply_head(head, ends, local.examples)
        loss = problem.loss(predictions, local.examples)
        outcome += [predictions, loss, local.examples.labels.double()]
        outcome += [each for each in (local.examples.offset,) if each is not None]
        outcome += torch.autograd.grad(loss, [z, *head.parameters()], allow_unused=True, materialize_grads=True)
    return outcome


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize(
    "options", [{}, {"pair_features": False}, {"from_history": False}, {"pair_features": False, "from_history": False}]
)
def test_batches_have_the_scores_and_gradients_of_a_row_per_pair(
    options: dict[str, Any], directed: bool, training: bool
) -> None:
    batched, by_rows = problems(directed=directed, **options)
    found, expected = (outcomes(each, random_head(batched), training=training) for each in (batched, by_rows))
    assert len(found) == len(expected)
    for ours, plain in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-9)


def test_some_pairs_of_a_batch_keep_their_features() -> None:
    batch = PairBatch(
        torch.tensor([2, 0, 1, 0], dtype=torch.int32),
        torch.tensor([0, 1, 1, 0], dtype=torch.int32),
        NodeInputs(torch.arange(3)),
        NodeInputs(torch.arange(2)),
        torch.tensor([3, 2, 0]),
        torch.tensor([[3.0], [2.0], [0.5]]),
    )
    some = batch.select(torch.tensor([0, 1, 3]))
    assert (some.row.tolist(), some.column.tolist()) == ([2, 0, 0], [0, 1, 0])
    assert some.related.tolist() == [2, 0]
    assert some.related_features.tolist() == [[3.0], [0.5]]
