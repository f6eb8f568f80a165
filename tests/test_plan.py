from __future__ import annotations

import json
from itertools import product

import pytest

from strobe.batching import Full, Groups, Vertices, Windows
from strobe.errors import StrobeError, UnknownNameError
from strobe.exchange import Exchange, Halo, Nothing, Relay, Shuffle, Stay
from strobe.placement import BySnapshot, Chunks, Hash, Replicated, TimeBlocks
from strobe.plan import Plan, PlanError
from strobe.registry import AXES
from strobe.sync import Average

TABLE = """\
store      full
placement  by-snapshot (dealt False)
batching   windows (size 5)
exchange   structure none, time shuffle
schedule   in-order
sync       average (every 3)"""


def test_a_plan_survives_json() -> None:
    plan = Plan(
        placement=BySnapshot(dealt=False),
        batching=Groups(size=5, stride=2),
        exchange=Exchange(structure=Nothing(), time=Relay(groups=3)),
        sync=Average(every=7),
    )
    assert plan != Plan()
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_choices_left_out_of_json_are_the_usual_ones() -> None:
    assert Plan.from_json({"batching": "windows"}) == Plan(batching=Windows())


def test_an_axis_that_is_not_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'batching'"):
        Plan.from_json({"batchin": "windows"})


def test_the_usual_plan_fits_any_number_of_ranks() -> None:
    for num_ranks in (1, 2, 64):
        Plan().check(num_ranks)
    assert Plan().exact


def test_all_conflicts_are_reported_at_once_with_what_mends_them() -> None:
    plan = Plan(placement=TimeBlocks(), batching=Groups(size=4), exchange=Exchange(structure=Nothing(), time=Stay()))
    with pytest.raises(PlanError) as error:
        plan.check(4)
    lines = str(error.value).splitlines()
    assert lines[0] == "the plan does not fit together on 4 ranks:"
    assert len(lines) == 4
    for line, axis, fact, fix in zip(
        lines[1:],
        ("batching groups", "exchange structure none", "exchange structure none"),
        ("replicas", "whole snapshots", "whole sequences"),
        ("placement replicated", "exchange structure halo", "exchange time relay or shuffle"),
        strict=True,
    ):
        assert line.startswith(f"- {axis}")
        assert f"needs {fact}: " in line
        assert f"Choose {fix}" in line
    assert isinstance(error.value, StrobeError)


def test_what_one_choice_lacks_another_gives() -> None:
    everything = Exchange(structure=Nothing(), time=Stay())
    assert not Plan(placement=Replicated(), batching=Groups(), exchange=everything).conflicts(4)
    assert [c.need.fact for c in Plan(placement=Replicated(), exchange=everything).conflicts(4)] == ["batches per rank"]
    assert not Plan(placement=Hash(), exchange=Exchange(structure=Halo(), time=Stay())).conflicts(4)
    assert not Plan(placement=BySnapshot(), exchange=Exchange(structure=Nothing(), time=Relay())).conflicts(4)
    assert Plan(placement=BySnapshot(), exchange=Exchange(structure=Nothing(), time=Stay())).conflicts(4)


def test_on_one_rank_everything_goes_together_but_what_is_made_of_chunks() -> None:
    for placement, batching, structure, time in product(
        AXES["placement"].values(), AXES["batching"].values(), AXES["structure"].values(), AXES["time"].values()
    ):
        exchange = Exchange(structure=structure(), time=time())  # type: ignore[arg-type]
        plan = Plan(placement=placement(), batching=batching(), exchange=exchange)  # type: ignore[arg-type]
        missing = {conflict.need.fact for conflict in plan.conflicts(1)}
        assert not missing or (missing == {"chunks"} and placement is not Chunks)


def test_a_plan_is_exact_only_if_every_choice_is() -> None:
    assert Plan(batching=Windows()).exact
    assert not Plan(batching=Vertices()).exact
    assert not Plan(sync=Average()).exact


def test_a_plan_prints_as_a_table() -> None:
    plan = Plan(
        placement=BySnapshot(dealt=False),
        batching=Windows(size=5),
        exchange=Exchange(structure=Nothing(), time=Shuffle()),
        sync=Average(every=3),
    )
    assert str(plan) == TABLE


def test_plans_of_the_same_choices_are_equal() -> None:
    assert Plan(batching=Full()) == Plan()
    assert Plan(batching=Windows(size=2)) != Plan(batching=Windows(size=3))
