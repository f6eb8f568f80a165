"""Training on ranks is training on one: the same losses, weights and scores, over epochs of plain gradient descent.

Two epochs are enough: the second begins with what the first has left, in weights and in what ranks keep.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations, cycle, product
from typing import Any

import pytest

from strobe import placement
from strobe.batching import Batching, Full, Fused, Groups, Windows
from strobe.exchange import Exchange, Halo, NoExchange, NoTimeExchange, Overlapped, Relay, Shuffle
from strobe.exchange.relay import legs
from strobe.models import MODELS
from strobe.placement import Placement
from strobe.plan import Plan
from strobe.presets import PRESETS, preset
from strobe.schedule import BinPacking
from strobe.sync import AllReduce, Average, Sync
from strobe.tasks import make_task
from tests.support.gathered import Gathered
from tests.support.graphs import AWKWARD, PlainSnapshot
from tests.support.runs import short_graph
from tests.support.trainer import Trainer, assert_same

TASKS = ("regression", "classification", "link-prediction")
EXACT = [name for name in PRESETS if preset(name).exact]


@pytest.fixture(autouse=True)
def _several_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legs, "MIN_CELLS", 4)


def one_rank(plan: Plan, num_ranks: int) -> Plan:
    """The same steps for one rank: where ranks have batches of their own, it takes all of a step."""
    return replace(plan, schedule=Gathered(inner=plan.schedule, num_ranks=num_ranks))


def repeatable(plan: Plan) -> Plan:
    """The same plan with an order that does not depend on how long batches took this time."""
    schedule = plan.schedule
    return replace(plan, schedule=replace(schedule, times="counted")) if isinstance(schedule, BinPacking) else plan


def ranks_and_task(name: str, model: str) -> tuple[int, str]:
    """Of preset, model, number of ranks and task every two choices meet; two ranks are tried most, they cost least."""
    row, column = EXACT.index(name), list(MODELS).index(model)
    return {0: 3, 1: 4}.get((row + column) % 9, 2), TASKS[(row + 2 * column) % 3]


def test_every_preset_and_every_model_meets_every_number_of_ranks_and_every_task() -> None:
    found = [(name, model, *ranks_and_task(name, model)) for name in EXACT for model in MODELS]
    for axis, choices in enumerate((EXACT, list(MODELS))):
        assert {(each[axis], each[2]) for each in found} == set(product(choices, (2, 3, 4)))
        assert {(each[axis], each[3]) for each in found} == set(product(choices, TASKS))
    assert {each[2:] for each in found} == set(product((2, 3, 4), TASKS))


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("model", MODELS)
def test_every_exact_preset_trains_every_model_as_one_rank_does(
    name: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_ranks, task = ranks_and_task(name, model)
    trainer = Trainer(short_graph(), model, task)
    trainer.same_head(monkeypatch)
    plan = repeatable(preset(name))
    # Where ranks have batches of their own, moments of batch norms are means over ranks: scores differ, and with
    # them which weights are the best; the weights themselves do not.
    scored = model != "mpnn-lstm" or plan.placement.name != "replicated"
    options = {"epochs": 2} if scored else {"epochs": 2, "evaluate_every": 99}
    (one,) = trainer.train(one_rank(plan, num_ranks), 1, **options)
    assert_same(trainer.train(plan, num_ranks, **options), one, scored=scored)


@pytest.mark.parametrize(("model", "size"), list(zip(MODELS, cycle([None, 2]), strict=False)))
def test_chunks_in_pieces_that_send_every_row_train_every_model_as_one_rank_does(
    model: str, size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the preset of chunks does once nothing is stale, with every chunk a piece by itself."""
    chunks = placement.Chunks(per_rank=3)
    plan = replace(preset("dgc", threshold=0.0), placement=chunks, batching=Fused(memory=0, size=size))
    assert plan.exact
    trainer = Trainer(short_graph(), model, TASKS[0])
    trainer.same_head(monkeypatch)
    (one,) = trainer.train(replace(plan, batching=Full() if size is None else Windows(size=size)), 1, epochs=2)
    assert_same(trainer.train(plan, 1, epochs=2), one)
    assert_same(trainer.train(plan, 2, epochs=2), one)


PLACEMENTS: dict[str, Placement] = {
    "time-blocks": placement.TimeBlocks(),
    "blocks-x-parts": placement.TimeBlocks(parts=2),
    "hash": placement.Hash(),
    "load-aware": placement.LoadAware(),
    "metis-per-snapshot": placement.MetisPerSnapshot(),
    "online": placement.Online(slack=1.5),
    "by-snapshot": placement.BySnapshot(),
    "snapshot-then-sequence": placement.SnapshotThenSequence(),
    "chunks": placement.Chunks(per_rank=4),
    "replicated": placement.Replicated(),
}
BATCHINGS: dict[str, Batching] = {"full": Full(), "windows": Windows(size=2), "groups": Groups(size=3, stride=2)}
EXCHANGES = {
    f"{structure.name}+{time.name}": Exchange(structure=structure, time=time)
    for structure, time in product(
        (NoExchange(), Halo(), Overlapped()), (NoTimeExchange(), Relay(pipeline_groups=3), Shuffle())
    )
}
SYNCS: dict[str, Sync] = {"all-reduce": AllReduce(bucket_kb=1), "average": Average(every=1)}


RECOMPUTED = (None, 2)
OFFLOAD = ("never", "always")


def pairs_of_choices() -> list[tuple[Plan, int | None, str]]:
    """Plans, what is computed again, and where windows are, in which every two choices that go together meet at least
    once."""
    axes = (PLACEMENTS.items(), BATCHINGS.items(), EXCHANGES.items(), SYNCS.items())
    met: dict[tuple[Plan, int | None, str], set[tuple[str, str]]] = {}
    for (place, where), (cut, batching), (how, exchange), (agree, sync) in product(*axes):
        plan = Plan(placement=where, batching=batching, exchange=exchange, sync=sync)
        if not plan.conflicts(4):
            for recompute, offload in product(RECOMPUTED, OFFLOAD):
                choices = (place, cut, how, agree, f"recompute {recompute}", f"offload {offload}")
                met[plan, recompute, offload] = set(combinations(choices, 2))
    found, left = [], set[tuple[str, str]]().union(*met.values())
    while left:
        found.append(max(met, key=lambda each: len(met[each] & left)))
        left -= met[found[-1]]
    return found


@pytest.mark.parametrize(
    ("plan", "recompute", "offload"),
    pairs_of_choices(),
    ids=lambda each: " | ".join(str(choice) for _, choice in each.axes()) if isinstance(each, Plan) else str(each),
)
def test_all_pairs_of_choices_train_as_one_rank_does(
    plan: Plan, recompute: int | None, offload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On four ranks where two are two blocks of two parts each, on three where states pass one in the middle."""
    num_ranks = 4 if plan.placement.name == "time-blocks" else 3 if plan.exchange.time.name == "relay" else 2
    assert not plan.conflicts(num_ranks)
    trainer = Trainer(short_graph(), "wd-gcn", "link-prediction")
    trainer.same_head(monkeypatch)
    options: dict[str, Any] = {"recompute": recompute, "epochs": 2, "evaluate_every": 2}
    (one,) = trainer.train(replace(one_rank(plan, num_ranks), sync=AllReduce()), 1, **options)
    assert_same(trainer.train(plan, num_ranks, **options, offload=offload), one)


LONG: dict[str, list[PlainSnapshot]] = {
    name: [
        PlainSnapshot(shot.nodes, shot.edges, k) for k, shot in enumerate(plain.snapshots * (6 // len(plain.snapshots)))
    ]
    for name, plain in AWKWARD.items()
    if any(shot.nodes for shot in plain.snapshots) and not re.search("features|labels|never present", name)
}
"""Snapshots of awkward graphs, again and again, enough to be split. Not of those that differ by what nodes carry, nor
of one in which no node is there twice in a row."""


@pytest.mark.parametrize(
    ("name", "plan"),
    [(name, plan) for k, name in enumerate(LONG) for plan in (("relay", "pss"), ("pss-ts", "hash"))[k % 2]],
)
def test_awkward_graphs_train_as_on_one_rank(name: str, plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty snapshots, isolated nodes, more ranks than nodes: some ranks own nothing at all."""
    plain = replace(AWKWARD[name], snapshots=LONG[name], derived=None)
    trainer = Trainer(plain.build(), "mpnn-lstm", make_task("regression", from_last=False))
    trainer.same_head(monkeypatch)
    (one,) = trainer.train(preset(plan), 1, epochs=2)
    assert_same(trainer.train(preset(plan), 4, epochs=2), one)


def test_vertices_of_one_batch_are_the_full_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(short_graph(), "tgcn", "regression")
    trainer.same_head(monkeypatch)
    (one,) = trainer.train(Plan(), 1, epochs=2)
    assert_same(trainer.train(preset("dbov", size=1000), 3, epochs=2), one)
    (few,) = trainer.train(preset("dbov", size=15), 1, epochs=2)
    # Such batches are small: nothing of them is computed again.
    assert_same(trainer.train(preset("dbov", size=15), 2, epochs=2, recompute=2), few)
