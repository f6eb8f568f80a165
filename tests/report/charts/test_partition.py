from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from strobe.placement import Chunks, Hash, Placement
from strobe.planner.partition import PartitionEstimate, estimate_partition
from strobe.report.charts.partition import partition_svg
from strobe.report.charts.svg import CATEGORICAL_COLORS
from tests.support.runs import small_graph


def estimate(placement: Placement, ranks: int) -> PartitionEstimate:
    options: dict[str, Any] = {"threads": 1, "device": "cpu", "model_options": {"hidden": 4, "layers": 2}}
    return estimate_partition(small_graph(), "wd-gcn", "regression", placement=placement, ranks=ranks, **options)


def texts(chart: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(chart).iter("{http://www.w3.org/2000/svg}text")]


def test_every_rank_has_a_color() -> None:
    chart = partition_svg(estimate(Chunks(), 3))
    shown = texts(chart)
    assert {"rank 0", "rank 1", "rank 2", "training", "cells over time, by owner"} <= set(shown)
    assert any("chunks of training" in text for text in shown)
    assert all(color in chart for color in CATEGORICAL_COLORS[:3])
    assert CATEGORICAL_COLORS[3] not in chart


def test_many_ranks_share_colors_and_the_legend_lists_them() -> None:
    shown = texts(partition_svg(estimate(Hash(), 50)))
    assert {"0, 12, …, 48", "2, 14, …, 38", "11, 23, …, 47"} <= set(shown)
    assert not any("chunks of training" in text for text in shown)


@pytest.mark.parametrize("ranks", [1, 100])
def test_single_and_empty_ranks_can_be_drawn(ranks: int) -> None:
    assert texts(partition_svg(estimate(Hash(), ranks)))
