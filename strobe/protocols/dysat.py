"""DySAT's single-step link prediction: a classifier on embeddings predicts the links of the next snapshot.

Sankar et al., "DySAT: Deep Neural Representation Learning on Dynamic Graphs via Self-Attention Networks", WSDM 2020,
section 5, and the authors' code (aravindsankar28/DySAT). For every snapshot t but the last, a model is trained from
scratch on the snapshots up to t; a logistic regression on Hadamard products of its embeddings is trained on 20 % of the
links of snapshot t + 1 and as many non-links; 20 % choose the epoch, 60 % are scored.

Different from the authors: models, their inputs and the loss (``strobe.protocols.step_embeddings``), and random
numbers. The authors' code prints one AUC per step; micro AUC is one AUC over the test pairs of all steps together,
macro AUC the mean over steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np

from strobe.graph import DynamicGraph
from strobe.graph.datasets import load
from strobe.protocols.base import Protocol, ProtocolRequest, ProtocolResult
from strobe.protocols.link_scores import (
    BASELINES,
    FITTED,
    NODE_ACTIVITY,
    PAIR_FEATURES,
    SCORED,
    LinkHistory,
    PairFeatures,
    StepScores,
    aucs,
    classify_step,
    hadamard,
    step_auc,
)
from strobe.protocols.model_names import names_from
from strobe.protocols.next_links import PARTS, FloatArray, Pairs, Step, snapshot_links, split_links
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


WITH_PAIR_FEATURES = "+pair-features"
"""Ending of the methods whose classifier also reads features of the pair: not the published protocol."""

CHANGES: Mapping[str, Mapping[str, Any]] = {
    "uci_dysat": {
        "hidden": 32,
        "epochs": 10,
        "evaluate_every": 1,
        "contexts": 0,
        "negatives": 3,
        "identity": 0.0,
    }
}
"""Settings that differ from the defaults of ``EmbeddingSettings``, by data set; chosen on validation pairs.

On UCI longer training lowers the validation AUC (activity inputs, one seed: .858 after 5 epochs, .822 after 20), an
untrained model is as good (.86), and products of the inputs alone (baseline ``node-activity``, .889) are better.
"""


@dataclass(frozen=True, kw_only=True)
class DysatLinkPrediction(Protocol):
    """Links of the next snapshot by a logistic regression on embeddings."""

    def read(self, request: ProtocolRequest) -> LinkSteps:
        """Load the data set of a request and draw the pairs of every step."""
        return LinkSteps(load(self.choose_data(request.data), data_dir=request.data_dir))

    def run(self, request: ProtocolRequest) -> ProtocolResult:
        method = self.choose_model(request.model)
        if method in (*BASELINES, *FITTED):
            return next(each for each in self.run_baselines(request) if each.method == method)
        settings = EmbeddingSettings(**CHANGES.get(self.choose_data(request.data), {}))
        if request.epochs is not None:
            settings = replace(settings, epochs=request.epochs)
        began, links = perf_counter(), self.read(request)
        model_run = ModelRun(
            links=links,
            model=method.removesuffix(WITH_PAIR_FEATURES),
            settings=settings,
            pair_features=method.endswith(WITH_PAIR_FEATURES),
            device=request.device,
        )
        runs = []
        for seed in request.seed_values:
            stage = f"training, seed {seed + 1 - request.first_seed} of {request.seeds}: epochs of all steps"
            on_epoch = lambda done, total, stage=stage: request.report(stage, done, total)  # noqa: E731
            runs.append(list(model_run.score(seed, on_epoch)))
        scores, epochs = ([[getattr(each, name) for each in run] for run in runs] for name in ("scores", "epoch"))
        chosen = asdict(settings) | {"device": request.device or "cpu", "best_epochs": epochs}
        return self._result(method, links, request, scores, chosen, perf_counter() - began)

    def run_baselines(self, request: ProtocolRequest) -> list[ProtocolResult]:
        began, links = perf_counter(), self.read(request)
        request.report("baselines", 0, None)
        scores = links.score_baselines()
        seconds = perf_counter() - began
        return [self._result(name, links, request, [each], {}, seconds) for name, each in scores.items()]

    def _result(
        self,
        method: str,
        links: LinkSteps,
        request: ProtocolRequest,
        scores: Sequence[Sequence[StepScores]],
        settings: dict[str, Any],
        seconds: float,
    ) -> ProtocolResult:
        """Build the result from the scores of every seed and step."""
        found = {part: [aucs(links.steps, each, part) for each in scores] for part in SCORED}
        fixed = {
            "steps": len(links.steps),
            "links": {part: sum(len(step[part].pairs) // 2 for step in links.steps) for part in PARTS},
            "macro_auc": {part: [each.macro for each in found[part]] for part in SCORED},
            "auc_per_step": {part: [list(each.per_step) for each in found[part]] for part in SCORED},
        }
        return ProtocolResult(
            protocol=self.name,
            data=self.choose_data(request.data),
            method=method,
            metric=self.metric,
            seeds=(0,) if method in (*BASELINES, *FITTED) else request.seed_values,
            validation=tuple(each.micro for each in found["validation"]),
            test=tuple(each.micro for each in found["test"]),
            more={"macro AUC": tuple(each.macro for each in found["test"])},
            coverage=1.0,  # every eligible link of the test part is scored
            settings=fixed | settings,
            seconds=seconds,
        )


_MODELS = names_from("dysat")

DYSAT = DysatLinkPrediction(
    name="dysat",
    description="DySAT's link prediction: a classifier on embeddings predicts the links of the next snapshot.",
    citation="Sankar et al., DySAT: Deep Neural Representation Learning on Dynamic Graphs via Self-Attention "
    "Networks, WSDM 2020",
    data_sets=("enron_dysat", "uci_dysat"),
    models=(*_MODELS, *(name + WITH_PAIR_FEATURES for name in _MODELS), *BASELINES, *FITTED),
    metric="micro AUC",
    more_metrics=("macro AUC",),
    snapshots="16 (Enron) and 13 (UCI), as the authors publish them; every node seen so far is in a snapshot",
    split="per step: links of the next snapshot between nodes seen so far, 20 % to train the logistic regression, "
    "20 % to choose the epoch, 60 % test; micro AUC is over the pairs of all steps, macro AUC is the mean over "
    "steps",
    negatives="as many pairs without a link in the next snapshot, uniform over nodes seen so far",
    update="per step, a model trained from scratch on the snapshots up to t, to predict random-walk contexts "
    "(DySAT's loss; not on UCI) and links of the next snapshot up to t; the classifier reads Hadamard products of "
    "embeddings, and in methods that end in +pair-features, which are not the published protocol, also the history "
    "of the pair",
)
