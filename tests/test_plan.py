from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from strobe.batching import Groups, Vertices, Windows
from strobe.errors import StrobeError, UnknownNameError
from strobe.exchange import Exchange, Halo, NoExchange, NoTimeExchange, Relay, Shuffle
from strobe.placement import BySnapshot, Chunks, Hash, Replicated
from strobe.plan import Plan, PlanError
from strobe.registry import AXES
from strobe.schedule import FreeRunning, InOrder
from strobe.sync import AllReduce, Average, Sync

TABLE = """\
store      full
placement  by-snapshot (round_robin False)
batching   windows (size 5)
exchange   structure none, time shuffle
schedule   in-order
sync       average (every 3)"""


def test_a_plan_survives_json() -> None:
    plan = Plan(
        placement=BySnapshot(round_robin=False),
        batching=Groups(size=5, stride=2),
        exchange=Exchange(structure=NoExchange(), time=Relay(pipeline_groups=3)),
        sync=Average(every=7),
    )
    free = replace(plan, schedule=FreeRunning(async_evaluation=False), sync=Average(every_s=0.5))
    for each in (plan, free):
        assert each != Plan()
        assert Plan.from_json(json.loads(json.dumps(each.to_json()))) == each
    assert Plan.from_json({"batching": "windows"}) == Plan(batching=Windows()) != Plan(batching=Windows(size=3))
    with pytest.raises(UnknownNameError, match="'batching'"):
        Plan.from_json({"batchin": "windows"})


def test_check_reports_all_conflicts_at_once_with_fixes() -> None:
    plan = Plan(batching=Groups(size=4), exchange=Exchange(structure=NoExchange(), time=NoTimeExchange()))
    with pytest.raises(StrobeError) as error:
        plan.check(4)
    assert isinstance(error.value, PlanError)
    _, *lines = str(error.value).splitlines()
    for line, *words in zip(
        lines,
        ("batching groups", "exchange structure none", "exchange structure none"),
        ("needs replicas: ", "needs whole snapshots: ", "needs whole sequences: "),
        ("placement replicated", "exchange structure halo", "exchange time relay or shuffle"),
        strict=True,
    ):
        assert all(word in line for word in words), line


def test_a_need_is_met_by_a_fact_of_another_axis() -> None:
    everything = Exchange(structure=NoExchange(), time=NoTimeExchange())
    assert not Plan(placement=Replicated(), batching=Groups(), exchange=everything).conflicts(4)
    assert [c.need.fact for c in Plan(placement=Replicated(), exchange=everything).conflicts(4)] == ["batches per rank"]
    assert not Plan(placement=Hash(), exchange=Exchange(structure=Halo(), time=NoTimeExchange())).conflicts(4)
    assert not Plan(placement=BySnapshot(), exchange=Exchange(structure=NoExchange(), time=Relay())).conflicts(4)
    assert Plan(placement=BySnapshot(), exchange=Exchange(structure=NoExchange(), time=NoTimeExchange())).conflicts(4)


def test_on_one_rank_only_chunk_facts_can_be_missing() -> None:
    made: list[list[Any]] = [
        [strategy() for strategy in AXES[axis].values()] for axis in ("placement", "batching", "structure", "time")
    ]
    for placement, batching, structure, time in product(*made):
        plan = Plan(placement=placement, batching=batching, exchange=Exchange(structure=structure, time=time))
        missing = {conflict.need.fact for conflict in plan.conflicts(1)}
        assert not missing or missing == {"node chunks"} or (missing == {"chunks"} and type(placement) is not Chunks)


def test_free_running_needs_batches_per_rank_and_divergent_weights() -> None:
    """Averaging by the clock needs independent steps in turn."""
    own = Plan(
        placement=Replicated(), batching=Groups(), exchange=Exchange(structure=NoExchange(), time=NoTimeExchange())
    )

    def conflicts(plan: Plan, sync: Sync) -> list[str]:
        return [str(conflict) for conflict in replace(plan, sync=sync).conflicts(4)]

    free = replace(own, schedule=FreeRunning())
    assert conflicts(free, Average()) == conflicts(free, Average(every_s=2.0)) == conflicts(own, Average()) == []
    (apart,) = conflicts(free, AllReduce())
    assert "needs divergent weights" in apart
    assert "Choose sync average" in apart
    (clock,) = conflicts(own, Average(every_s=2.0))
    assert "needs independent steps" in clock
    assert "Choose schedule free-running" in clock
    (shared,) = conflicts(Plan(schedule=FreeRunning()), Average())
    assert "needs batches per rank: " in shared
    for schedule, sync in product((InOrder(), FreeRunning()), (AllReduce(), Average(), Average(every_s=1.0))):
        assert not Plan(schedule=schedule, sync=sync).conflicts(1)


def test_a_plan_is_exact_only_if_all_strategies_are() -> None:
    assert Plan(batching=Windows()).exact
    assert not Plan(batching=Vertices()).exact
    assert not Plan(sync=Average()).exact
    assert not Plan(schedule=FreeRunning()).exact


def test_a_plan_prints_as_a_table() -> None:
    plan = Plan(
        placement=BySnapshot(round_robin=False),
        batching=Windows(size=5),
        exchange=Exchange(structure=NoExchange(), time=Shuffle()),
        sync=Average(every=3),
    )
    assert str(plan) == TABLE
