"""Training on ranks is training on one: the same losses, weights and scores, over epochs of plain gradient descent."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, cycle, product

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
from tests.support.graphs import AWKWARD, PlainGraph, PlainSnapshot
from tests.support.runs import small_graph
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
    """Of preset, model, number of ranks and task every two choices meet: one of nine for each preset and model."""
    row, column = EXACT.index(name), list(MODELS).index(model)
    return (2, 3, 4)[(row + column) % 3], TASKS[(row + 2 * column) % 3]


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
    trainer = Trainer(small_graph(), model, task)
    trainer.same_head(monkeypatch)
    plan = repeatable(preset(name))
    # Where ranks have batches of their own, moments of batch norms are means over ranks: scores differ, and with
    # them which weights are the best; the weights themselves do not.
    scored = model != "mpnn-lstm" or plan.placement.name != "replicated"
    every = {} if scored else {"evaluate_every": 99}
    (one,) = trainer.train(one_rank(plan, num_ranks), 1, **every)
    assert_same(trainer.train(plan, num_ranks, **every), one, scored=scored)


@pytest.mark.parametrize(("model", "size"), list(zip(MODELS, cycle([None, 2]), strict=False)))
def test_chunks_in_pieces_that_send_every_row_train_every_model_as_one_rank_does(
    model: str, size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the preset of chunks does once nothing is stale, with every chunk a piece by itself."""
    chunks = placement.Chunks(per_rank=3)
    plan = replace(preset("dgc", threshold=0.0), placement=chunks, batching=Fused(memory=0, size=size))
    assert plan.exact
    trainer = Trainer(small_graph(), model, TASKS[0])
    trainer.same_head(monkeypatch)
    (one,) = trainer.train(replace(plan, batching=Full() if size is None else Windows(size=size)), 1, epochs=3)
    assert_same(trainer.train(plan, 1, epochs=3), one)
    assert_same(trainer.train(plan, 3, epochs=3), one)


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


def pairs_of_choices() -> list[tuple[Plan, int | None]]:
    """Plans, and what is computed again, in which every two choices that go together meet at least once."""
    axes = (PLACEMENTS.items(), BATCHINGS.items(), EXCHANGES.items(), SYNCS.items())
    met: dict[tuple[Plan, int | None], set[tuple[str, str]]] = {}
    for (place, where), (cut, batching), (how, exchange), (agree, sync) in product(*axes):
        plan = Plan(placement=where, batching=batching, exchange=exchange, sync=sync)
        if not plan.conflicts(4):
            for recompute in RECOMPUTED:
                met[plan, recompute] = set(combinations((place, cut, how, agree, f"recompute {recompute}"), 2))
    found, left = [], set[tuple[str, str]]().union(*met.values())
    while left:
        found.append(max(met, key=lambda each: len(met[each] & left)))
        left -= met[found[-1]]
    return found


@pytest.mark.parametrize(
    ("plan", "recompute"),
    pairs_of_choices(),
    ids=lambda each: " | ".join(str(choice) for _, choice in each.axes()) if isinstance(each, Plan) else str(each),
)
def test_all_pairs_of_choices_train_as_one_rank_does(
    plan: Plan, recompute: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(small_graph(), "wd-gcn", "link-prediction")
    trainer.same_head(monkeypatch)
    (one,) = trainer.train(replace(one_rank(plan, 4), sync=AllReduce()), 1, recompute=recompute, epochs=3)
    assert_same(trainer.train(plan, 4, recompute=recompute, epochs=3), one)


LONG: dict[str, PlainGraph] = {
    name: replace(plain, snapshots=[replace(shot, time=k) for k, shot in enumerate(plain.snapshots * 6)], derived=None)
    for name, plain in AWKWARD.items()
    if any(shot.nodes for shot in plain.snapshots) and name != "a node that is never present"
}
"""Awkward graphs six times over, long enough to be split; but for one in which no node is there twice in a row."""


@pytest.mark.parametrize(
    ("name", "plan"),
    [(name, plan) for k, name in enumerate(LONG) for plan in (("relay", "pss"), ("pss-ts", "hash"))[k % 2]],
)
def test_awkward_graphs_train_as_on_one_rank(name: str, plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty snapshots, isolated nodes, more ranks than nodes: some ranks own nothing at all."""
    shots = [PlainSnapshot(shot.nodes, shot.edges, shot.time) for shot in LONG[name].snapshots]
    plain = PlainGraph(LONG[name].num_nodes, shots, directed=LONG[name].directed, weighted=LONG[name].weighted)
    trainer = Trainer(plain.build(), "mpnn-lstm", make_task("regression", from_last=False))
    trainer.same_head(monkeypatch)
    (one,) = trainer.train(preset(plan), 1, epochs=2)
    assert_same(trainer.train(preset(plan), 4, epochs=2), one)


def test_vertices_of_one_batch_are_the_full_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(small_graph(), "tgcn", "regression")
    trainer.same_head(monkeypatch)
    (one,) = trainer.train(Plan(), 1)
    assert_same(trainer.train(preset("dbov", size=1000), 3), one)
    few = trainer.train(preset("dbov", size=15), 1)
    assert_same(trainer.train(preset("dbov", size=15), 3), few[0])
    again = trainer.train(preset("dbov", size=15), 2, recompute=2)
    assert_same(again, few[0])  # such batches are small: nothing of them is computed again
