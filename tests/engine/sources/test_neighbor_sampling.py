"""Steps of sampled windows: the same on any number of ranks, exact where nothing is left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from strobe import placement
from strobe.batching import Groups, Sampled
from strobe.comm import SingleRankComm
from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.progress import Progress
from strobe.engine.sources.neighbor_sampling import NeighborSamplingSource
from strobe.errors import OptionError
from strobe.exchange import Exchange, Fetch, Shuffle
from strobe.graph import DynamicGraph, PerCell
from strobe.models.structure import GCN
from strobe.ops.sparse.normalize import Norm
from strobe.ops.sparse.spmm import spmm
from strobe.placement import Placement
from strobe.plan import Plan
from strobe.presets import preset
from strobe.schedule.base import Lockstep
from strobe.store import Delta, Full
from strobe.view import View, WindowData
from strobe.view.data.sampled import SampledData
from tests.support.runs import short_graph, small_graph, source_of
from tests.support.trainer import Trainer, assert_same

CONVOLVING = ("tgcn", "dysat", "sage", "evolvegcn-o")
"""Models that convolve before they go along sequences, and norm nothing over a whole snapshot."""

LOCKSTEP = Lockstep(SingleRankComm())
TASKS = ("regression", "classification", "link-prediction")
PLACEMENTS: dict[str, Placement] = {
    "online": placement.Online(slack=1.5),
    "hash": placement.Hash(),
    "metis-per-snapshot": placement.MetisPerSnapshot(),
}


def plan_of(place: str = "online", *, ahead: bool = True, sequences: bool = False, **options: object) -> Plan:
    return Plan(
        store=Delta(window=3),
        placement=PLACEMENTS[place],
        batching=Sampled(**({"history": 3, "size": 16, "fanouts": (2, 1)} | options)),  # type: ignore[arg-type]
        exchange=Exchange(structure=Fetch(prefetch=ahead, gather_sequences=sequences), time=Shuffle()),
    )


def changing_graph() -> DynamicGraph:
    """With features of cells that change a little from snapshot to snapshot."""
    graph = short_graph()
    random = np.random.default_rng(0)
    whole = np.repeat(random.normal(size=(1, graph.num_nodes, 6)), len(graph), 0).cumsum(0)
    rows = np.concatenate([whole[t, snapshot.nodes] for t, snapshot in enumerate(graph)])
    return graph.with_features(PerCell(rows.astype(np.float32)))


@pytest.mark.parametrize("model", CONVOLVING)
def test_any_number_of_ranks_samples_and_computes_the_same(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, (num_ranks, place) in enumerate(zip((2, 3, 4), PLACEMENTS, strict=True)):
        trainer = Trainer(changing_graph(), model, TASKS[number])
        trainer.same_head(monkeypatch)
        plan = plan_of(place, ahead=number != 1, size=500 if TASKS[number] == "link-prediction" else 24)
        (one,) = trainer.train(plan, 1, epochs=1)
        assert_same(trainer.train(plan, num_ranks, epochs=1), one)


@pytest.mark.parametrize(("place", "task"), [("hash", "link-prediction"), ("metis-per-snapshot", "regression")])
def test_older_cells_may_be_computed_where_the_newest_one_is(
    place: str, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(changing_graph(), "dysat", task)
    trainer.same_head(monkeypatch)
    plans = [plan_of(place, sequences=sequences, size=48) for sequences in (False, True)]
    (one,) = trainer.train(plans[0], 1, epochs=1)
    sent = []
    for plan in plans:
        runs = trainer.train(plan, 3, epochs=1)
        assert_same(runs, one)
        steps = [rank["sent"] for rank in runs[0].history[0]["ranks"]]
        sent.append({kind: sum(each.get(kind, 0) for each in steps) for kind in ("forward/shuffle", "draw/features")})
    if place != "hash":  # which moves no node
        assert sent[0]["forward/shuffle"] > sent[1]["forward/shuffle"] == 0
        assert sent[0]["draw/features"] < sent[1]["draw/features"]


@pytest.mark.parametrize("model", [*CONVOLVING, "mpnn-lstm", "evolvegcn-h"])
def test_with_nothing_left_out_a_step_is_that_of_the_whole_window(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(short_graph(), model, "regression")
    trainer.same_head(monkeypatch)
    plan = plan_of(fanouts=0, size=1000)
    never = {"epochs": 2, "evaluate_every": 99}  # groups are scored with states that go on
    (whole,) = trainer.train(Plan(batching=Groups(size=3, stride=1), placement=placement.Replicated()), 1, **never)
    (one,) = trainer.train(plan, 1, **never)
    assert_same([one], whole, scored=False)


def test_fanouts_change_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(small_graph(), "sage", "regression")
    trainer.same_head(monkeypatch)
    losses = [
        trainer.train(plan_of(fanouts=fanouts, size=1000), 1, epochs=1)[0].history[-1]["loss"] for fanouts in (0, 1, 2)
    ]
    assert len(set(losses)) == 3


def test_stores_and_prefetching_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(changing_graph(), "sage", "regression")
    trainer.same_head(monkeypatch)
    weights = []
    for store, ahead in ((Full(), True), (Delta(window=3), True), (Delta(window=2, segments=2), False)):
        run = trainer.train(replace(plan_of(ahead=ahead), store=store), 2, epochs=1)[0]
        weights.append(torch.cat([each.flatten() for each in run.model.parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])


def test_passes_multiply_the_steps_of_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(small_graph(), "sage", "regression")
    trainer.same_head(monkeypatch)
    (once,) = trainer.train(plan_of(), 1, epochs=1)
    (thrice,) = trainer.train(plan_of(passes=3), 1, epochs=1)
    assert thrice.history[0]["step"] == 3 * once.history[0]["step"]


def made(plan: Plan, model: str = "sage", task: str = "regression") -> NeighborSamplingSource:
    given = TrainRequest(
        small_graph(), model, task, {"hidden": 4}, changes={"threads": 1, "precision": "float64"}, plan=plan
    )
    return source_of(resolve(given, None, Progress(), SingleRankComm()), NeighborSamplingSource)


def test_sampled_aggregation_is_unbiased() -> None:
    """Over 300 epochs the mean of what targets aggregate comes near, by 4 standard errors of it."""
    norms: tuple[Norm, ...] = ("gcn", "mean", "sum")
    steps, found = made(plan_of(fanouts=(1, 2), size=1000, history=1)), []
    for epoch in range(300):
        window = next(iter(next(steps.epoch(epoch, LOCKSTEP)).values()))
        assert isinstance(window[0].data, SampledData)
        cells = window[0].data
        found.append(torch.stack([View(cells).aggregate(cells.x, norm)[cells.seed_rows] for norm in norms]))
    whole = WindowData(steps._job.problem.graph[:1], dtype=torch.float64, device=cells.device)
    drawn = torch.from_numpy(cells.samples[0].position[: found[0].shape[1]]).long()  # the same in every epoch
    mean, error = torch.stack(found).mean(0), torch.stack(found).std(0) / len(found) ** 0.5
    for k, norm in enumerate(norms):
        wanted = spmm(whole.matrix(norm), whole.x)[drawn]
        assert (error[k] > 0).any()
        assert ((mean[k] - wanted).abs() <= 4 * error[k] + 1e-12).double().mean() > 0.99


def test_an_epoch_has_every_example_once() -> None:
    steps = made(plan_of())
    asked = dict.fromkeys(steps._job.problem.split.train, 0)
    count = 0
    for window in (window for step in steps.epoch(0, LOCKSTEP) for window in step.values()):
        question = window[0].examples_fn
        assert question is not None
        found = question()
        assert found is not None
        asked[window[0].times[-1]] += len(found)
        count += 1
    assert asked == {t: len(steps._job.problem.examples(t, 0) or ()) for t in asked}
    assert count == steps.steps_per_epoch


@pytest.mark.parametrize("model", ["dcrnn"])
def test_models_whose_convolutions_read_the_past_are_refused(model: str) -> None:
    with pytest.raises(OptionError, match="convolves first, or batching windows"):
        made(plan_of(), model)


class TwoProducts(torch.nn.Module):
    """A convolution that reads twice as far as others."""

    width = 4

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.once = GCN(inputs, 4)
        self.twice = _Twice(4, 4)

    def forward(self, view: View) -> torch.Tensor:
        return self.twice(view, torch.relu(self.once(view, view.x)))  # type: ignore[no-any-return]


class _Twice(GCN):
    async def convolve(self, view: View, x: torch.Tensor) -> torch.Tensor:
        return await super().convolve(view, await view.aggregate_async(x))


def test_a_convolution_of_several_products_is_refused() -> None:
    trainer = Trainer(small_graph(), "sage", "regression")
    trainer.model = TwoProducts(2)  # type: ignore[assignment]
    with pytest.raises(OptionError, match="one sparse product"):
        trainer.train(plan_of(), 1)


def test_the_preset_is_a_plan_of_its_own_choices() -> None:
    plan = preset("distdy", window=2, fanouts=3)
    assert not plan.conflicts(4)
    assert plan.batching == Sampled(history=2, fanouts=3)
    named = {conflict.need.fact for conflict in replace(plan, exchange=Plan().exchange).conflicts(2)}
    assert named == {"fetched inputs", "gathered sequences"}
