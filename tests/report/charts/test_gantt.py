from __future__ import annotations

from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.comm.ledger import BatchSpan
from strobe.report.charts.gantt import MAX_BOXES, MAX_RANKS, gantt_svg, pipeline_svg, planned_spans
from strobe.report.charts.svg import PALETTE
from strobe.schedule.costs import Costs, Steps

SVG = "{http://www.w3.org/2000/svg}"
# Rank 0 computes 3 + 1 of 5 seconds, rank 1 computes 2.
STEPS: Steps = [[[0, 1], [2]], [[3], []]]
COSTS = Costs(np.array([1.0, 2.0, 2.0, 1.0]), sync_s=0.5)


def draw(rows: dict[str, list[list[BatchSpan]]], title: str = "An epoch") -> Element:
    chart = gantt_svg(rows, title=title)
    assert chart is not None
    return ElementTree.fromstring(chart)


def texts(root: Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def boxes(root: Element) -> list[tuple[str, float, float]]:
    """Tooltip, left edge and width of every box."""
    rects = ((box.find(f"{SVG}title"), box) for box in root.iter(f"{SVG}rect"))
    return [
        (title.text or "", float(box.attrib["x"]), float(box.attrib["width"]))
        for title, box in rects
        if title is not None
    ]


def full_rows(num_steps: int, num_ranks: int) -> list[list[BatchSpan]]:
    """One batch per rank and step, without idle time."""
    return [
        [(step, (step - 1) * num_ranks + rank, step - 1.0, float(step)) for step in range(1, num_steps + 1)]
        for rank in range(num_ranks)
    ]


def test_planned_steps_start_together_and_sync_after_the_slowest_rank() -> None:
    assert planned_spans(STEPS, COSTS) == [
        [(1, 0, 0.0, 1.0), (1, 1, 1.0, 3.0), (1, -1, 3.0, 3.5), (2, 3, 3.5, 4.5), (2, -1, 4.5, 5.0)],
        [(1, 2, 0.0, 2.0), (1, -1, 3.0, 3.5), (2, -1, 4.5, 5.0)],
    ]
    assert planned_spans([], COSTS) == []


@given(st.integers(1, 5), st.lists(st.floats(0, 10), min_size=1, max_size=40), st.floats(0, 1), st.data())
def test_planned_epoch_lasts_as_long_as_its_costs(
    num_ranks: int, seconds: list[float], agree_s: float, data: st.DataObject
) -> None:
    steps: Steps = [[[] for _ in range(num_ranks)] for _ in range(4)]
    for batch in range(len(seconds)):
        steps[data.draw(st.integers(0, 3))][data.draw(st.integers(0, num_ranks - 1))].append(batch)
    costs = Costs(np.array(seconds), agree_s)
    rows = planned_spans(steps, costs)
    assert max(ended for row in rows for *_, ended in row) == pytest.approx(costs.epoch_seconds(steps))
    took = {batch: ended - began for row in rows for _, batch, began, ended in row if batch >= 0}
    assert [took[batch] for batch in range(len(seconds))] == pytest.approx(seconds)


def test_gantt_has_a_row_per_rank_and_a_box_per_batch_and_sync() -> None:
    rows = planned_spans(STEPS, COSTS)
    root = draw({"planned": rows, "measured": rows}, "my title")
    assert [text for text in texts(root) if text.startswith("rank ")] == ["rank 0", "rank 1"] * 2
    assert {"my title", "planned", "measured", "step", "synchronizing", "waiting"} <= set(texts(root))
    titles = [title for title, *_ in boxes(root)]
    assert len(titles) == 2 * (4 + 4)
    assert titles[:3] == [
        "batch 0, step 1, 1000.00 ms",
        "batch 1, step 1, 2000.00 ms",
        "synchronizing, step 1, 500.00 ms",
    ]


def test_sync_without_duration_is_not_drawn() -> None:
    assert len(boxes(draw({"planned": planned_spans(STEPS, Costs(COSTS.seconds))}))) == 4


def test_caption_has_length_utilization_and_imbalance() -> None:
    root = draw({"planned": planned_spans(STEPS, COSTS)})
    assert "2 steps in 5.0 s; ranks compute 60% of the time; fullest rank to emptiest 2.0 times" in texts(root)
    idle = draw({"planned": planned_spans([[[0], []]], COSTS)})
    assert "1 step in 1.5 s; ranks compute 33% of the time; some ranks have nothing" in texts(idle)
    alone = draw({"planned": planned_spans([[[0]]], COSTS)})
    assert "1 step in 1.5 s; ranks compute 67% of the time" in texts(alone)


def test_panels_start_at_0_and_share_a_scale() -> None:
    fast: list[list[BatchSpan]] = [[(1, 0, 0.0, 1.0)]]
    slow: list[list[BatchSpan]] = [[(1, 0, 700.0, 702.0)]]
    (_, left, short), (_, other, long) = boxes(draw({"planned": fast, "measured": slow}))
    assert left == other
    assert long / short == pytest.approx(2, rel=0.01)


def test_first_and_last_batch_have_the_ends_of_the_gradient() -> None:
    chart = gantt_svg({"planned": full_rows(9, 1)}) or ""
    fills = [box.attrib["fill"] for box in ElementTree.fromstring(chart).iter(f"{SVG}rect") if len(box)]
    assert (fills[0], fills[-1]) == (PALETTE[0], PALETTE[1])
    assert len(set(fills)) == 9


def test_no_batches_give_no_chart() -> None:
    assert gantt_svg({}) is None
    assert gantt_svg({"planned": [], "measured": [[], []]}) is None
    assert gantt_svg({"measured": [[(1, -1, 0.0, 1.0)]]}) is None
    assert "measured" not in texts(draw({"planned": full_rows(1, 1), "measured": [[]]}))


def test_rank_without_spans_is_excluded_from_statistics() -> None:
    shown = texts(draw({"measured": [[(1, 0, 0.0, 1.0)], [], [(1, 1, 0.0, 1.0)]]}))
    assert (
        "1 step in 1.0 s; ranks compute 100% of the time; fullest rank to emptiest 1.00 times; "
        + ("nothing known of 1 rank")
        in shown
    )
    assert "rank 1" in shown


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
def test_inconsistent_clocks_can_be_drawn(row: list[BatchSpan]) -> None:
    found = boxes(draw({"measured": [row, []]}))
    assert len(found) == sum(began == began for _, _, began, _ in row)
    assert all(np.isfinite(x) and wide > 0 and x + wide < 960 for _, x, wide in found)


def test_of_many_ranks_the_first_and_the_last_are_drawn() -> None:
    shown = texts(draw({"planned": full_rows(2, 64)}))
    ranks = [text for text in shown if text.startswith("rank ")]
    assert len(ranks) == MAX_RANKS
    assert (ranks[-2], ranks[-1]) == ("rank 30", "rank 63")
    assert "ranks 31 to 62 are left out" in shown
    assert not any("left out" in text for text in texts(draw({"planned": full_rows(2, MAX_RANKS)})))


def test_of_many_steps_both_panels_draw_the_first_that_fit() -> None:
    many, few = full_rows(MAX_BOXES, 2), full_rows(10, 2)
    root = draw({"planned": many, "measured": many})
    assert len(boxes(root)) == 2 * MAX_BOXES
    assert sum("drawn are the first 1,500 of 3,000 steps" in text for text in texts(root)) == 2
    assert not any("drawn are" in text for text in texts(draw({"planned": few})))


def test_step_numbers_are_round_without_space_for_all() -> None:
    def numbers(num_steps: int) -> list[str]:
        root = draw({"planned": full_rows(num_steps, 1)})
        found = [text for text in root.iter(f"{SVG}text") if text.attrib.get("class") == "small"]
        assert min(np.diff([float(text.attrib["x"]) for text in found])) >= 12
        return [text.text or "" for text in found]

    assert numbers(20) == [str(step) for step in range(1, 21)]
    assert numbers(1000) == ["1", *(str(step) for step in range(50, 1001, 50))]


def test_names_are_escaped() -> None:
    rows: dict[str, list[list[BatchSpan]]] = {"<plan>": [[(1, 0, 0.0, 1.0)]]}
    chart = gantt_svg(rows, names=lambda batch: f"<&{batch}>", title='"a" < b & c')
    assert chart is not None
    root = ElementTree.fromstring(chart)
    assert boxes(root)[0][0].startswith("<&0>, step 1")
    assert {'"a" < b & c', "<plan>"} <= set(texts(root))
    assert root.attrib["aria-label"] == '"a" < b & c'


def test_pipeline_has_a_row_per_rank_and_a_box_per_slot() -> None:
    chart = pipeline_svg(
        [
            [("forward", 1, 0, 0.0, 1.0), ("forward", 1, 1, 1.0, 2.0), ("backward", 1, 1, 4.0, 5.0)],
            [("forward", 1, 1, 1.0, 2.0), ("forward", 1, 2, 2.0, 3.0), ("backward", 1, 2, 3.0, 4.0)],
        ]
    )
    assert chart is not None
    root = ElementTree.fromstring(chart)
    assert len(boxes(root)) == 6
    assert [text for text in texts(root) if text.startswith("rank ")] == ["rank 0", "rank 1"]
    assert "60%" in chart
    assert pipeline_svg([[], []]) is None
