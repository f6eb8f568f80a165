"""Training on snapshots that share their structure gives the bits of training on snapshots stored one by one."""

from __future__ import annotations

import numpy as np
import pytest

from strobe.batching import Groups, Windows
from strobe.graph import DynamicGraph, from_edges
from strobe.models import MODELS
from strobe.plan import Plan
from strobe.presets import preset
from strobe.store import Delta
from strobe.view.data import matrices
from tests.support.runs import same_tensors
from tests.support.trainer import Trainer
from tests.support.unshared import without_sharing


def weekly_graph(snapshots: int = 9, nodes: int = 12, *, directed: bool = True) -> DynamicGraph:
    """Two structures that alternate, after which one stays, and a signal that changes."""
    rng = np.random.default_rng(0)
    edges = [rng.integers(0, nodes, (2, 30)) for _ in range(2)]
    present = [np.arange(nodes), np.arange(nodes - 2)]
    edges[1] %= nodes - 2
    order = [t % 2 if t < 4 else 0 for t in range(snapshots)]
    sizes = [len(present[which]) for which in order]
    return from_edges(
        [edges[which] for which in order],
        weights=[np.linspace(0.5, 2, 30, dtype=np.float32)] * snapshots,
        nodes=[present[which] for which in order],
        num_nodes=nodes,
        directed=directed,
        x=[rng.standard_normal((size, 2)).astype(np.float32) for size in sizes],
        y=[rng.standard_normal(size).astype(np.float32) for size in sizes],
    )


def assert_same_bits(graph: DynamicGraph, model: str, plan: Plan, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(graph, model, "regression")
    trainer.same_head(monkeypatch)
    shared = trainer.train(plan, ranks, epochs=2)
    trainer.graph = without_sharing(graph)
    for run, apart in zip(shared, trainer.train(plan, ranks, epochs=2), strict=True):
        assert [line["loss"] for line in run.history] == [line["loss"] for line in apart.history]
        assert same_tensors(run.model.state_dict(), apart.model.state_dict())
        assert (run.validation, run.test) == (apart.validation, apart.test)


@pytest.mark.parametrize("model", MODELS)
def test_every_model_trains_with_the_same_bits(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = weekly_graph(directed=len(model) % 2 == 0)
    assert graph.num_structures == 2
    assert_same_bits(graph, model, Plan(batching=Windows(size=3)), 1, monkeypatch)


@pytest.mark.parametrize("model", ["gcn", "tgcn", "dcrnn"])
def test_products_without_copies_give_the_same_bits(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrices, "_MIN_BLOCK_ENTRIES", 1)
    assert_same_bits(weekly_graph(), model, Plan(batching=Groups(size=4)), 1, monkeypatch)


def test_snapshots_kept_as_differences_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_same_bits(weekly_graph(), "dcrnn", Plan(store=Delta(window=3), batching=Windows(size=3)), 1, monkeypatch)


@pytest.mark.parametrize(("name", "model"), [("relay", "tgcn"), ("metis", "gcn"), ("pss", "dcrnn"), ("distdy", "tgcn")])
def test_two_ranks_train_with_the_same_bits(name: str, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_same_bits(weekly_graph(), model, preset(name), 2, monkeypatch)
