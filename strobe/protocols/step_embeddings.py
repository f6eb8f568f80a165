"""Embeddings of a snapshot's nodes by a model that is trained on the snapshots up to it, for DySAT's protocol.

The loss of snapshot s has two terms, each a binary cross-entropy of products ⟨z_u, z_v⟩ of embeddings after s:

- contexts, as in the authors' code: v is a random-walk context of u in snapshot s. Negatives are uniform over the
  snapshot's nodes, as in the evaluation; the authors sample them by degree to the power 0.75;
- next links: u and v have a link in snapshot s + 1. Used for s + 1 ≤ t only. The authors have no such term.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from strobe.graph import DynamicGraph
from strobe.graph.features import PerCell
from strobe.models import make_model
from strobe.protocols.next_links import snapshot_links
from strobe.protocols.walk_contexts import IntArray, WalkContexts
from strobe.tasks.edge_history import EdgeHistory
from strobe.view import View, WindowData

Embeddings = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class EmbeddingSettings:
    """Settings of a model's training, chosen on validation pairs.

    Attributes:
        hidden: columns of the embeddings.
        epochs: optimizer steps of each time step, over all snapshots up to it.
        evaluate_every: epochs between two scores on the validation pairs; the best one counts.
        lr, weight_decay: of Adam.
        clip: largest norm of the gradient.
        contexts: random-walk contexts per node and epoch; 0: without that term.
        negatives: negatives per link of the next snapshot; 0: without that term.
        identity: value of the one-hot columns of node ids in the inputs; 0: without them.
    """

    hidden: int = 64
    epochs: int = 60
    evaluate_every: int = 10
    lr: float = 5e-3
    weight_decay: float = 5e-4
    clip: float = 1.0
    contexts: int = 10
    negatives: int = 10
    identity: float = 1.0


def with_node_inputs(graph: DynamicGraph, identity: float) -> DynamicGraph:
    """Give a graph the models' inputs: activity of the node so far, then its id as one-hot columns.

    Activity are the features of nodes of ``EdgeHistory`` at the cell's snapshot: links in it, in recent ones and in
    all so far, and the time of the last. DySAT has the one-hot columns alone. Costs 4 bytes per cell and node.
    """
    history = EdgeHistory(graph)
    size = history.num_node_features
    values = np.zeros((graph.num_cells, size + (graph.num_nodes if identity else 0)), np.float32)
    for t, snapshot in enumerate(graph):
        nodes, rows = snapshot.nodes.astype(np.int64), slice(*graph.cell_ptr[t : t + 2])
        values[rows, :size] = history.features(t, nodes, nodes)[:, :size]
        if identity:
            values[np.arange(rows.start, rows.stop), size + nodes] = identity
    return graph.with_features(PerCell(values))


class StepEmbeddings:
    """Trains a model on a graph and embeds the nodes of its last snapshot.

    Args:
        graph: the snapshots up to the one whose nodes are embedded, with inputs.
        contexts: random-walk contexts of every snapshot.
        model: name of the model.
        settings: settings of its training.
        seed: of weights and samples.
        device: device of the model.
    """

    def __init__(
        self,
        graph: DynamicGraph,
        contexts: Sequence[WalkContexts],
        model: str,
        settings: EmbeddingSettings,
        *,
        seed: Sequence[int],
        device: str | None = None,
    ) -> None:
        assert graph.features is not None
        self._graph, self._contexts, self._settings = graph, contexts, settings
        self._rng = np.random.default_rng(seed)
        self._data = WindowData(graph, device=device or "cpu")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(self._rng.integers(2**31)))
            self._model = make_model(model, graph.features.shape[0], hidden=settings.hidden).to(self._data.device)
            self._torch_state = torch.get_rng_state()  # of dropout
        self._next = [_next_links(graph, s) for s in range(len(graph) - 1)]

    def train(self) -> Iterator[tuple[int, Embeddings]]:
        """Yield (epoch, embeddings by node id, [N, H]) after every ``evaluate_every`` epochs."""
        settings = self._settings
        optimizer = torch.optim.Adam(self._model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)
        for epoch in range(1, settings.epochs + 1):
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(self._torch_state)
                self._model.train()
                loss = self._loss(self._model(View(self._data)))
                self._torch_state = torch.get_rng_state()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self._model.parameters(), settings.clip)
            optimizer.step()
            if epoch % settings.evaluate_every == 0 or epoch == settings.epochs:
                yield epoch, self.embed()

    @torch.no_grad()
    def embed(self) -> Embeddings:
        """Return the embeddings after the last snapshot by node id, [N, H]; 0 for nodes that are not in it."""
        self._model.eval()
        z = self._model(View(self._data))
        embeddings = np.zeros((self._graph.num_nodes, z.shape[1]), np.float32)
        embeddings[self._graph[len(self._graph) - 1].nodes] = z[self._data.rows(len(self._graph) - 1)].cpu().numpy()
        return embeddings

    def _loss(self, z: Tensor) -> Tensor:
        """The sum over snapshots of the mean losses of positives and of negatives."""
        terms = [term for s in range(len(self._graph)) for term in self._terms(s)]
        if not terms:
            return z.sum() * 0
        source, destination, sign, weight = (
            torch.from_numpy(np.concatenate(column)).to(z.device) for column in zip(*terms, strict=True)
        )
        products = (z[source] * z[destination]).sum(1)
        return (nn.functional.softplus(-sign.to(z) * products) * weight.to(z)).sum()

    def _terms(self, s: int) -> Iterator[tuple[IntArray, IntArray, npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
        """Yield cells of both ends, sign (1 for positives) and weight of some pairs of snapshot s."""
        rng, settings, first = self._rng, self._settings, self._data.cell_ptr[s]
        size = self._data.cell_ptr[s + 1] - first
        if settings.contexts and len(self._contexts[s].nodes):
            source, context = self._contexts[s].sample(settings.contexts, rng)
            yield _term(first + source, first + context, 1.0)
            yield _term(first + source, first + rng.integers(0, size, len(source)), -1.0)
        if settings.negatives and s < len(self._next) and len(self._next[s]):
            links = self._next[s]
            yield _term(first + links[:, 0], first + links[:, 1], 1.0)
            ends = rng.integers(0, size, (2, len(links) * settings.negatives))
            yield _term(first + ends[0], first + ends[1], -1.0)


def _term(
    source: IntArray, destination: IntArray, sign: float
) -> tuple[IntArray, IntArray, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    return source, destination, np.full(len(source), sign), np.full(len(source), 1 / len(source))


def _next_links(graph: DynamicGraph, s: int) -> IntArray:
    """Links of snapshot s + 1 between different nodes of snapshot s, as positions in snapshot s, [n, 2]."""
    nodes, links = graph[s].nodes.astype(np.int64), snapshot_links(graph[s + 1])
    links = links[(links[:, 0] != links[:, 1]) & np.isin(links, nodes).all(axis=1)]
    positions: IntArray = np.searchsorted(nodes, links)
    return positions
