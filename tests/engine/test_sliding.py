"""Windows that slide: with everything kept they are the whole history, on any number of ranks; else as by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from strobe.batching import Groups, Trapezoid
from strobe.exchange import Exchange, Halo, Stay
from strobe.graph import DynamicGraph
from strobe.models import MODELS
from strobe.placement import Metis
from strobe.plan import Plan
from strobe.schedule import InOrder, RandomSplit
from tests.engine.runs import small_graph
from tests.engine.trainer import Trainer, assert_same


@pytest.fixture(scope="module")
def graph() -> DynamicGraph:
    return small_graph()


def sliding(batching: Trapezoid, chunks: int = 4) -> Plan:
    return Plan(
        placement=Metis(chunks=chunks),
        batching=batching,
        exchange=Exchange(structure=Halo(), time=Stay()),
        schedule=InOrder(),
    )


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("model", MODELS)
def test_everything_kept_is_the_whole_history(
    graph: DynamicGraph, model: str, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(graph, model, "regression")
    trainer.same_head(monkeypatch)
    history = Plan(batching=Groups(size=len(graph), stride=1), schedule=InOrder(per_step=1))
    (one,) = trainer.train(history, 1, epochs=2)
    runs = trainer.train(sliding(Trapezoid(full=3, decayed=len(graph), keep=1)), ranks, epochs=2)
    assert_same(runs, one)
