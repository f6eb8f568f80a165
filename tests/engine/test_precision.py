"""Rows stored in 16 bits: about the same losses with weights that stay exact, for every model and task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import strobe
from strobe.api import open_run
from strobe.batching import Sampled
from strobe.engine import evaluate
from strobe.engine.evaluation.predict import predictions
from strobe.errors import OptionError
from strobe.exchange import Exchange, Fetch, NoTimeExchange
from strobe.models import MODELS
from strobe.plan import Plan
from tests.support.runs import small_graph, small_task

GRAPH = small_graph()
TASKS = ("regression", "link-prediction", "classification")
GIVEN: dict[str, Any] = {"epochs": 2, "window": 3, "device": "cpu", "threads": 1}


@pytest.mark.parametrize(("number", "model"), list(enumerate(MODELS)))
def test_losses_are_about_those_of_float32(number: int, model: str) -> None:
    task = small_task(TASKS[number % 3])
    wide, narrow = (strobe.train(GRAPH, model, task, precision=each, **GIVEN) for each in ("float32", "bf16"))
    losses = [[line["loss"] for line in run.history] for run in (wide, narrow)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=0.03)
    assert losses[0] != losses[1], "something was rounded"
    assert {weight.dtype for weight in narrow.model.parameters()} == {torch.float32}
    assert narrow.job.partitioned_graph.window_data(range(2)).x.dtype == torch.bfloat16
    assert narrow.job.partitioned_graph.window_data(range(2)).matrix("gcn").weight.dtype == torch.float32  # type: ignore[union-attr]


def test_segments_give_about_the_same_losses() -> None:
    ways: list[dict[str, Any]] = [{"recompute": None}, {"recompute": 1}, {"recompute": 2, "offload": "always"}]
    runs = [strobe.train(GRAPH, "mpnn-lstm", "regression", precision="bf16", **GIVEN, **way) for way in ways]
    first, *others = ([line["loss"] for line in run.history] for run in runs)
    for losses in others:
        np.testing.assert_allclose(losses, first, rtol=0.02)


def test_resume_evaluation_and_prediction_use_the_precision_of_training(tmp_path: Path) -> None:
    GRAPH.save(tmp_path / "graph")
    there = tmp_path / "run"
    strobe.train(tmp_path / "graph", "tgcn", "regression", precision="bf16", out=there, **GIVEN)
    run = strobe.train(None, None, out=there, resume=True, epochs=3)
    straight = strobe.train(GRAPH, "tgcn", "regression", precision="bf16", **(GIVEN | {"epochs": 3}))
    assert [line["loss"] for line in run.history] == [line["loss"] for line in straight.history]
    assert evaluate(there).metrics == run.test
    said = predictions(open_run(there), "test", embeddings=True)
    assert np.isfinite(said["predicted_log_in_degree"].to_numpy()).all()


def test_what_cannot_store_rows_so_is_refused() -> None:
    with pytest.raises(OptionError, match="16 bits on one rank only"):
        strobe.train(GRAPH, "tgcn", "regression", precision="bf16", ranks=2, **GIVEN)
    plan = Plan(batching=Sampled(history=2, size=8), exchange=Exchange(structure=Fetch(), time=NoTimeExchange()))
    with pytest.raises(OptionError, match="16 bits where windows are kept"):
        strobe.train(GRAPH, "tgcn", "regression", precision="bf16", plan=plan, epochs=1, device="cpu")
