"""Steps of DySAT's protocol on a graph, and the scores of models and baselines in each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from strobe.graph import DynamicGraph
from strobe.protocols.link_baselines import BASELINES, FITTED, NODE_ACTIVITY, PAIR_FEATURES, LinkHistory
from strobe.protocols.link_classifier import (
    SCORED,
    PairFeatures,
    StepScores,
    classify_step,
    hadamard,
    step_auc,
)
from strobe.protocols.next_links import FloatArray, Pairs, Step, snapshot_links, split_links
from strobe.protocols.step_embeddings import EmbeddingSettings, StepEmbeddings, with_node_inputs
from strobe.protocols.walk_contexts import WalkContexts
from strobe.tasks.edge_history import EdgeHistory

OnEpoch = Callable[[int, int], None]
"""Called with (epochs done, epochs of all steps)."""


class LinkSteps:
    """The steps of a graph: snapshot t is read, links of snapshot t + 1 are predicted.

    Attributes:
        graph: the graph.
        steps: pairs of every step, by part.
    """

    def __init__(self, graph: DynamicGraph) -> None:
        self.graph = graph
        self.steps: list[Step] = [split_links(graph, t) for t in range(len(graph) - 1)]

    @cached_property
    def contexts(self) -> list[WalkContexts]:
        """Random-walk contexts of every snapshot that is read."""
        return [WalkContexts.of(self.graph[t]) for t in range(len(self.steps))]

    @cached_property
    def _history(self) -> EdgeHistory:
        return EdgeHistory(self.graph)

    def pair_features(self, t: int) -> PairFeatures:
        """Features of pairs from the links up to snapshot t, standardized over the training pairs of the step.

        Those of both ends are added, so that the order of the ends does not count.
        """
        size = self._history.num_node_features

        def raw(pairs: Pairs) -> FloatArray:
            values = self._history.features(t, pairs[:, 0], pairs[:, 1]).astype(np.float64)
            return np.column_stack([values[:, :size] + values[:, size : 2 * size], values[:, 2 * size :]])

        train = raw(self.steps[t]["train"].pairs)
        mean, deviation = train.mean(axis=0), np.maximum(train.std(axis=0), 1e-6)
        return lambda pairs: (raw(pairs) - mean) / deviation

    def score_baselines(self) -> dict[str, list[StepScores]]:
        """Scores of every step by trivial predictors, and by the classifier on features without embeddings."""
        history, inputs = LinkHistory(self.graph.num_nodes), with_node_inputs(self.graph, identity=0)
        assert inputs.features is not None
        scores: dict[str, list[StepScores]] = {name: [] for name in (*BASELINES, *FITTED)}
        for t, step in enumerate(self.steps):
            history.read(snapshot_links(self.graph[t]))
            by_part = {part: history.scores(step[part].pairs) for part in SCORED}
            for name in BASELINES:
                scores[name].append({part: by_part[part][name] for part in SCORED})
            activity = np.zeros((self.graph.num_nodes, *inputs.features.shape), np.float32)
            activity[inputs[t].nodes] = inputs.features.rows(inputs[t])
            scores[NODE_ACTIVITY].append(classify_step(step, hadamard(activity)))
            scores[PAIR_FEATURES].append(classify_step(step, self.pair_features(t)))
        return scores


@dataclass(frozen=True)
class BestEpoch:
    """A step's scores after the epoch with the highest AUC on its validation pairs."""

    scores: StepScores
    epoch: int


@dataclass(frozen=True, kw_only=True)
class ModelRun:
    """Training and scoring of a model at every step.

    Attributes:
        links: the steps.
        model: name of the model.
        settings: settings of its training.
        pair_features: whether the classifier also reads features of pairs.
        device: device of the model.
    """

    links: LinkSteps
    model: str
    settings: EmbeddingSettings
    pair_features: bool = False
    device: str | None = None

    @cached_property
    def _inputs(self) -> DynamicGraph:
        return with_node_inputs(self.links.graph, self.settings.identity)

    def score(self, seed: int, on_epoch: OnEpoch | None = None) -> Iterator[BestEpoch]:
        """Yield every step's best epoch. The model of step t is given the snapshots up to t alone."""
        epochs = self.settings.epochs
        for t, step in enumerate(self.links.steps):
            trained = StepEmbeddings(
                self._inputs[0 : t + 1],
                self.links.contexts[: t + 1] if self.settings.contexts else [],
                self.model,
                self.settings,
                seed=(seed, t),
                device=self.device,
            )
            more = self.links.pair_features(t) if self.pair_features else None
            best, best_auc = None, -1.0
            for epoch, embeddings in trained.train():
                scores = classify_step(step, _join(hadamard(embeddings), more))
                found = step_auc(scores["validation"], step["validation"])
                if best is None or found > best_auc:
                    best, best_auc = BestEpoch(scores, epoch), found
                if on_epoch is not None:
                    on_epoch(t * epochs + epoch, len(self.links.steps) * epochs)
            assert best is not None
            yield best


def _join(features: PairFeatures, more: PairFeatures | None) -> PairFeatures:
    return features if more is None else lambda pairs: np.column_stack([features(pairs), more(pairs)])
