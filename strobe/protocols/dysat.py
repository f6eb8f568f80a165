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

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

from strobe.graph.datasets import load
from strobe.protocols.base import Protocol, ProtocolRequest, ProtocolResult
from strobe.protocols.link_baselines import BASELINES, FITTED
from strobe.protocols.link_classifier import SCORED, StepScores, aucs
from strobe.protocols.link_evaluation import LinkSteps, ModelRun
from strobe.protocols.model_names import names_from
from strobe.protocols.next_links import PARTS
from strobe.protocols.step_embeddings import EmbeddingSettings

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
