from __future__ import annotations

from xml.etree import ElementTree

from strobe.engine.slots import Slots, busy_share, slots_svg

FULL: Slots = [
    [("forward", 1, 0, 0.0, 1.0), ("forward", 1, 1, 1.0, 2.0), ("backward", 1, 1, 4.0, 5.0)],
    [("forward", 1, 1, 1.0, 2.0), ("forward", 1, 2, 2.0, 3.0), ("backward", 1, 2, 3.0, 4.0)],
]


def test_the_busy_share_is_what_ranks_compute_of_the_time_a_stage_takes() -> None:
    # Forward two ranks have 3 seconds each and compute 2 each, backward 2 each and compute 1.
    assert busy_share(FULL) == (4 + 2) / (2 * 3 + 2 * 2)


def test_evaluation_does_not_count() -> None:
    more: Slots = [[*row, ("evaluate", 2, 0, 10.0, 99.0)] for row in FULL]
    assert busy_share(more) == busy_share(FULL)


def test_nothing_relayed_is_nothing_to_show() -> None:
    assert busy_share([]) is None
    assert busy_share([[], []]) is None
    assert slots_svg([[], []]) is None


def test_the_picture_has_a_row_per_rank_and_a_box_per_part() -> None:
    picture = slots_svg(FULL)
    assert picture is not None
    root = ElementTree.fromstring(picture)
    found = [each.tag.split("}")[1] for each in root]
    assert found.count("rect") == 1 + 6
    assert [each.text for each in root if each.text and each.text.startswith("rank")] == ["rank 0", "rank 1"]
    assert "60%" in picture
