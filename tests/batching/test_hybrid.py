from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from strobe.batching import Batching, Hybrid
from strobe.batching.drawing import Drawing, Size, draw
from strobe.errors import OptionError
from strobe.exchange import Cached, Exchange, Halo, Nothing, Stay
from strobe.placement import LoadAware, Replicated
from strobe.plan import Plan
from strobe.registry import make
from tests.placement.cases import chain


def test_a_batch_is_a_share_of_the_nodes_in_a_share_of_the_snapshots() -> None:
    assert Hybrid().drawing == Drawing(snapshots=(0.2,), nodes=(0.05,), groups=8)
    assert Hybrid().drawing.sizes(20, 1000) == [Size(4, 50)]
    assert Hybrid(snapshots=3, vertices=7).drawing.sizes(20, 1000) == [Size(3, 7)]


def test_what_is_said_of_drawing_is_drawn_by() -> None:
    hybrid = Hybrid(snapshots=(0.1, 4), vertices=[0.5, 1], sizes="random", groups=3, steps=11, memory=5)
    assert hybrid.drawing == Drawing(
        snapshots=(0.1, 4), nodes=(0.5, 1), chosen="random", groups=3, steps=11, memory=5.0
    )


def test_all_vertices_in_all_snapshots_are_the_full_batch_once_an_epoch() -> None:
    drawing = Hybrid(snapshots=1, vertices=1).drawing
    assert drawing.sizes(6, 9) == [Size(6, 9)]
    assert drawing.num_steps(6, 9) == 1
    assert drawing.capacities(6, 9) == [1], "and there is no other to be drawn"
    batch = draw(range(6), np.array_split(np.arange(9), 4), Size(6, 9), 1, (5,))
    assert batch.times == range(6)
    assert batch.targets is not None
    assert batch.targets.tolist() == list(range(9))


def test_no_batches_are_known_beforehand() -> None:
    assert Hybrid().batches(chain([5] * 4), range(4), hops=1) == []


@pytest.mark.parametrize(
    "hybrid",
    [
        Hybrid(),
        Hybrid(snapshots=1, vertices=300, steps=4),
        Hybrid(snapshots=[0.1, 0.2], vertices=(0.02, 50), sizes="learned", memory=0),
    ],
    ids=str,
)
def test_it_survives_json(hybrid: Hybrid) -> None:
    again = make("batching", json.loads(json.dumps(hybrid.to_json())))
    assert again == hybrid
    assert hash(again) == hash(hybrid)
    assert again.drawing == hybrid.drawing


def test_one_share_in_a_list_is_that_share() -> None:
    assert Hybrid(snapshots=[0.3], vertices=(0.1,)) == Hybrid(snapshots=0.3, vertices=0.1)


def test_a_list_that_changes_later_changes_nothing() -> None:
    shares = [0.1, 0.2]
    hybrid = Hybrid(vertices=shares, sizes="random")
    shares.append(5)
    assert hybrid.vertices == (0.1, 0.2)


@pytest.mark.parametrize("name", ["snapshots", "vertices"])
@pytest.mark.parametrize(
    "share", [0, -1, -0.5, 1.5, 2.5, float("nan"), float("inf"), True, None, "0.1", "many", {"a": 1}]
)
def test_what_is_neither_a_share_nor_a_number_is_refused(name: str, share: Any) -> None:
    for given in (share, [0.5, share]):
        wrong: dict[str, Any] = {name: given}
        with pytest.raises(OptionError) as error:
            Hybrid(**wrong, sizes="random")
        assert str(error.value).startswith(f"{name} of ")


def test_no_share_at_all_is_refused() -> None:
    with pytest.raises(OptionError, match="vertices of a batch are a number or several, not none at all"):
        Hybrid(vertices=())


def test_of_several_sizes_somebody_has_to_choose() -> None:
    with pytest.raises(OptionError, match="there are 6 sizes of batches to choose from: say sizes=random or"):
        Hybrid(snapshots=(0.1, 0.2), vertices=(0.1, 0.2, 0.3))
    assert Hybrid(snapshots=(0.1, 0.2), sizes="random").drawing.chosen == "random"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sizes": "learnt"}, "sizes of hybrid must be fixed or random or learned, not 'learnt'"),
        ({"groups": 0}, "groups of hybrid batches must be at least 1, not 0"),
        ({"groups": 1.5}, "groups of hybrid must be a whole number, not 1.5"),
        ({"steps": 0}, "steps of hybrid batches must be at least 1, not 0"),
        ({"memory": -1}, "memory for batches must be 0 MiB or more, not -1"),
        ({"memory": float("inf")}, "memory of hybrid must be a number, not inf"),
    ],
)
def test_other_options_out_of_range_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError) as error:
        Hybrid(**options)
    assert str(error.value) == text


@pytest.mark.parametrize("batching", [Hybrid(), make("batching", {"name": "vertices", "reservoir": 64.0})], ids=str)
def test_a_rank_needs_all_that_its_batches_read_at_hand(batching: Batching) -> None:
    cached = Exchange(structure=Cached(), time=Stay())
    plan = Plan(placement=LoadAware(), batching=batching, exchange=cached)
    assert not plan.conflicts(4)
    assert not plan.exact
    (conflict,) = replace(plan, exchange=Exchange(structure=Halo(), time=Stay())).conflicts(4)
    assert conflict.need.fact == "inputs at hand"
    assert "exchange structure cached" in str(conflict)
    assert not replace(plan, placement=Replicated(), exchange=Exchange(structure=Nothing(), time=Stay())).conflicts(4)
    assert not Plan(batching=batching).conflicts(1), "one rank has everything at hand"


def test_windows_are_not_for_it() -> None:
    with pytest.raises(OptionError, match=r"hybrid .* is not cut into windows of 4: leave --window out"):
        Hybrid().cut(4)


def test_a_small_share_of_few_nodes_is_still_enough_of_them() -> None:
    drawing = Hybrid(snapshots=0.5, vertices=(0.01, 0.5), sizes="random", least=64).drawing
    assert drawing.sizes(10, 1000) == [Size(5, 64), Size(5, 500)]
    assert drawing.sizes(10, 40) == [Size(5, 40)]
    with pytest.raises(OptionError, match="least of hybrid batches must be at least 1, not 0"):
        Hybrid(least=0)
