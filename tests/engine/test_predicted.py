"""What an exchange will send is known beforehand, to the byte."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch

from strobe.comm import Comm
from strobe.engine.job import Given, choose
from strobe.engine.launch import Place
from strobe.engine.predicted import Imagined, predicted
from strobe.engine.progress import Progress
from strobe.engine.run import Run
from strobe.engine.sharing import Sharing
from strobe.engine.trace import watch
from strobe.engine.train import train_here
from strobe.exchange import Overlapped, legs
from strobe.models import MODELS, make_model
from strobe.presets import preset
from tests.engine.runs import small_graph
from tests.ranks import as_threads

RANKS = 3
KINDS = ("halo", "relay", "shuffle", "carry", "state")


@pytest.mark.parametrize("plan", ["relay", "pss", "pts", "pss-ts", "metis", "hash", "overlapped"])
@pytest.mark.parametrize("name", MODELS)
def test_predicted_bytes_are_those_of_the_ledger(name: str, plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legs, "MIN_CELLS", 4)
    torch.manual_seed(0)
    model = make_model(name, 2, hidden=4)
    settings: dict[str, Any] = {"epochs": 1, "threads": 1, "evaluate_every": 2, "window": 3}
    chosen = preset("metis" if plan == "overlapped" else plan)
    if plan == "overlapped":
        chosen = replace(chosen, exchange=replace(chosen.exchange, structure=Overlapped()))
    given = Given(small_graph(), lambda _: deepcopy(model), "regression", None, None, settings, None, chosen)

    def work(comm: Comm) -> Run:
        return train_here(given, Place(), Progress(), comm)

    run = as_threads(work, RANKS)[0]
    job = choose(given, None, Progress(), num_ranks=RANKS)
    graph = job.problem.graph
    placed = job.plan.placement.place(graph, _windows(job), RANKS).with_sequences(graph)
    for rank in range(RANKS):
        expected: dict[str, int] = {}
        sharing = Sharing(graph, job.plan, Imagined(rank, RANKS), placed)
        for number, batch in enumerate(job.batches):
            share = sharing.cells(batch.times).share
            assert share is not None
            calls = watch(model, graph[batch.times.start : batch.times.stop])
            for kind, sent in predicted(share, calls, carries=number > 0).items():
                for phase, more in (("forward", sent.num_bytes), ("backward", sent.bytes_back)):
                    expected[f"{phase}/{kind}"] = expected.get(f"{phase}/{kind}", 0) + more
        counted = {
            key: sent
            for key, sent in run.ranks[rank]["sent"].items()
            if key.split("/")[0] in ("forward", "backward") and key.split("/")[1] in KINDS
        }
        assert counted == {key: more for key, more in expected.items() if more}


def _windows(job: Any) -> list[range]:
    split = job.problem.split
    later = [range(t, min(t + 3, part.stop)) for part in (split.validation, split.test) for t in part[::3]]
    return [*(batch.times for batch in job.batches), *later]
