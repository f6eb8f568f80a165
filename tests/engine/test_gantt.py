from __future__ import annotations

from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.comm.ledger import Ran
from strobe.engine.gantt import MOST_BOXES, MOST_RANKS, gantt_svg, planned
from strobe.palette import PALETTE
from strobe.schedule.costs import Costs, Steps

SVG = "{http://www.w3.org/2000/svg}"
# Rank 0 computes 3 + 1 of 5 seconds, rank 1 computes 2.
STEPS: Steps = [[[0, 1], [2]], [[3], []]]
COSTS = Costs(np.array([1.0, 2.0, 2.0, 1.0]), agree_s=0.5)


def drawn(rows: dict[str, list[list[Ran]]], title: str | None = None) -> Element:
    picture = gantt_svg(rows, title=title)
    assert picture is not None
    return ElementTree.fromstring(picture)


def texts(root: Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def boxes(root: Element) -> list[tuple[str, float, float]]:
    """What the reader is told of each, where it begins, how wide it is."""
    found = ((box.find(f"{SVG}title"), box) for box in root.iter(f"{SVG}rect"))
    return [
        (told.text or "", float(box.attrib["x"]), float(box.attrib["width"])) for told, box in found if told is not None
    ]


def in_a_row(num_steps: int, num_ranks: int) -> list[list[Ran]]:
    """A batch on every rank in every step, without a pause."""
    return [
        [(step, (step - 1) * num_ranks + rank, step - 1.0, float(step)) for step in range(1, num_steps + 1)]
        for rank in range(num_ranks)
    ]


def test_steps_begin_together_and_ranks_agree_after_the_slowest() -> None:
    assert planned(STEPS, COSTS) == [
        [(1, 0, 0.0, 1.0), (1, 1, 1.0, 3.0), (1, -1, 3.0, 3.5), (2, 3, 3.5, 4.5), (2, -1, 4.5, 5.0)],
        [(1, 2, 0.0, 2.0), (1, -1, 3.0, 3.5), (2, -1, 4.5, 5.0)],
    ]
    assert planned([], COSTS) == []


@given(st.integers(1, 5), st.lists(st.floats(0, 10), min_size=1, max_size=40), st.floats(0, 1), st.data())
def test_an_epoch_is_planned_to_take_what_its_costs_say(
    num_ranks: int, seconds: list[float], agree_s: float, data: st.DataObject
) -> None:
    steps: Steps = [[[] for _ in range(num_ranks)] for _ in range(4)]
    for batch in range(len(seconds)):
        steps[data.draw(st.integers(0, 3))][data.draw(st.integers(0, num_ranks - 1))].append(batch)
    costs = Costs(np.array(seconds), agree_s)
    rows = planned(steps, costs)
    assert max(ended for row in rows for *_, ended in row) == pytest.approx(costs.of(steps))
    took = {batch: ended - began for row in rows for _, batch, began, ended in row if batch >= 0}
    assert [took[batch] for batch in range(len(seconds))] == pytest.approx(seconds)


def test_the_picture_has_a_row_per_rank_and_a_box_per_batch_and_agreement() -> None:
    rows = planned(STEPS, COSTS)
    root = drawn({"planned": rows, "measured": rows}, "mine")
    assert [text for text in texts(root) if text.startswith("rank ")] == ["rank 0", "rank 1"] * 2
    assert {"mine", "planned", "measured", "step", "agreeing", "waiting"} <= set(texts(root))
    told = [told for told, *_ in boxes(root)]
    assert len(told) == 2 * (4 + 4)
    assert told[:3] == ["batch 0, step 1, 1000.00 ms", "batch 1, step 1, 2000.00 ms", "agreeing, step 1, 500.00 ms"]


def test_agreeing_that_takes_no_time_is_not_drawn() -> None:
    assert len(boxes(drawn({"planned": planned(STEPS, Costs(COSTS.seconds))}))) == 4


def test_a_caption_tells_length_computing_and_imbalance() -> None:
    root = drawn({"planned": planned(STEPS, COSTS)})
    assert "2 steps in 5.0 s; ranks compute 60% of the time; fullest rank to emptiest 2.0 times" in texts(root)
    idle = drawn({"planned": planned([[[0], []]], COSTS)})
    assert "1 step in 1.5 s; ranks compute 33% of the time; some ranks have nothing" in texts(idle)
    alone = drawn({"planned": planned([[[0]]], COSTS)})
    assert "1 step in 1.5 s; ranks compute 67% of the time" in texts(alone)


def test_panels_begin_at_their_own_0_and_share_a_scale() -> None:
    fast: list[list[Ran]] = [[(1, 0, 0.0, 1.0)]]
    slow: list[list[Ran]] = [[(1, 0, 700.0, 702.0)]]
    (_, left, short), (_, other, long) = boxes(drawn({"planned": fast, "measured": slow}))
    assert left == other
    assert long / short == pytest.approx(2, rel=0.01)


def test_early_and_late_batches_have_the_ends_of_the_gradient() -> None:
    picture = gantt_svg({"planned": in_a_row(9, 1)}) or ""
    fills = [box.attrib["fill"] for box in ElementTree.fromstring(picture).iter(f"{SVG}rect") if len(box)]
    assert (fills[0], fills[-1]) == (PALETTE[0], PALETTE[1])
    assert len(set(fills)) == 9


def test_nothing_that_ran_is_nothing_to_show() -> None:
    assert gantt_svg({}) is None
    assert gantt_svg({"planned": [], "measured": [[], []]}) is None
    assert gantt_svg({"measured": [[(1, -1, 0.0, 1.0)]]}) is None
    assert "measured" not in texts(drawn({"planned": in_a_row(1, 1), "measured": [[]]}))


def test_a_rank_of_which_nothing_is_known_does_not_count() -> None:
    told = texts(drawn({"measured": [[(1, 0, 0.0, 1.0)], [], [(1, 1, 0.0, 1.0)]]}))
    assert (
        "1 step in 1.0 s; ranks compute 100% of the time; fullest rank to emptiest 1.00 times; "
        + ("nothing known of 1 rank")
        in told
    )
    assert "rank 1" in told


@pytest.mark.parametrize(
    "row",
    [
        [(1, 0, 5.0, 5.0)],
        [(1, 0, 0.0, 1e-9), (1, 1, 0.5e-9, 2e-9)],
        [(1, 0, 1.0, 2.0), (1, 1, 1.999, 1.998), (1, -1, 3.0, 3.001)],
        [(3, 0, 1.0, 2.0), (7, 1, float("nan"), 2.0)],
        [(1, 0, 0.0, 1e5), (2, 1, 1e5, 1e5)],
        [(1, 0, 0.0, 1e-12), (2, 1, 1e-12, 1e5)],
    ],
)
def test_clocks_that_are_a_little_off_are_drawn_all_the_same(row: list[Ran]) -> None:
    found = boxes(drawn({"measured": [row, []]}))
    assert len(found) == sum(began == began for _, _, began, _ in row)
    assert all(np.isfinite(x) and wide > 0 and x + wide < 960 for _, x, wide in found)


def test_many_ranks_are_the_first_ones_and_the_last_and_it_is_said() -> None:
    told = texts(drawn({"planned": in_a_row(2, 64)}))
    ranks = [text for text in told if text.startswith("rank ")]
    assert len(ranks) == MOST_RANKS
    assert (ranks[-2], ranks[-1]) == ("rank 30", "rank 63")
    assert "ranks 31 to 62 are left out" in told
    assert not any("left out" in text for text in texts(drawn({"planned": in_a_row(2, MOST_RANKS)})))


def test_of_many_steps_both_panels_draw_the_first_that_fit_and_say_so() -> None:
    many, few = in_a_row(MOST_BOXES, 2), in_a_row(10, 2)
    root = drawn({"planned": many, "measured": many})
    assert len(boxes(root)) == 2 * MOST_BOXES
    assert sum("drawn are the first 1,500 of 3,000 steps" in text for text in texts(root)) == 2
    assert not any("drawn are" in text for text in texts(drawn({"planned": few})))


def test_numbers_of_steps_are_round_where_not_all_have_room() -> None:
    def numbers(num_steps: int) -> list[str]:
        root = drawn({"planned": in_a_row(num_steps, 1)})
        found = [text for text in root.iter(f"{SVG}text") if text.attrib.get("class") == "small"]
        assert min(np.diff([float(text.attrib["x"]) for text in found])) >= 12
        return [text.text or "" for text in found]

    assert numbers(20) == [str(step) for step in range(1, 21)]
    assert numbers(1000) == ["1", *(str(step) for step in range(50, 1001, 50))]


def test_names_are_escaped() -> None:
    rows: dict[str, list[list[Ran]]] = {"<plan>": [[(1, 0, 0.0, 1.0)]]}
    picture = gantt_svg(rows, names=lambda batch: f"<&{batch}>", title='"a" < b & c')
    assert picture is not None
    root = ElementTree.fromstring(picture)
    assert boxes(root)[0][0].startswith("<&0>, step 1")
    assert {'"a" < b & c', "<plan>"} <= set(texts(root))
    assert root.attrib["aria-label"] == '"a" < b & c'
