from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch

from strobe import train
from strobe.batching import Windows
from strobe.engine.run import Run
from strobe.graph import DynamicGraph
from strobe.graph.synthetic import Changing
from strobe.plan import Plan
from strobe.store import Delta, Full, Store
from tests.support.forks import fork_ranks
from tests.support.runs import same_tensors, small_graph


def trained(graph: DynamicGraph, store: Store, model: str, ranks: int = 1) -> Run:
    plan = Plan(store=store, batching=Windows(size=3))
    return train(graph, model, plan=plan, ranks=ranks, epochs=2, seed=5, threads=1, model_options={"hidden": 6})


def same_runs(first: Run, second: Run) -> bool:
    weights = [{**run.model.state_dict(), **run.head.state_dict()} for run in (first, second)]
    losses = [[line["loss"] for line in run.history] for run in (first, second)]
    return same_tensors(*weights) and losses[0] == losses[1] and first.test == second.test


@pytest.mark.parametrize("model", ["tgcn", "mpnn-lstm"])
def test_training_gives_the_same_bits_as_on_whole_snapshots(model: str) -> None:
    graph = Changing(nodes=30, edges=90, snapshots=9, features=6, seed=2).write()
    full = trained(graph, Full(), model)
    assert same_runs(full, trained(graph, Delta(window=3), model))
    weights = torch.cat([weight.flatten() for weight in full.model.state_dict().values()])
    assert weights.isfinite().all()


def test_two_ranks_that_keep_differences_give_the_same_bits_and_clear_up(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork_ranks(monkeypatch)
    graph = small_graph()  # people who come and go
    delta = trained(graph, Delta(window=2, segments=2, folder=str(tmp_path)), "tgcn", ranks=2)
    request.getfixturevalue("ranks_are_threads")  # from here on
    full = trained(graph, Full(), "tgcn", ranks=2)
    assert same_runs(full, delta)
    del delta
    gc.collect()
    assert list(tmp_path.iterdir()) == []
