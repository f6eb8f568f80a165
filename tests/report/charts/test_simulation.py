from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from strobe.planner.comm.network import Network
from strobe.planner.simulate import SimulatedEpoch, Simulation
from strobe.planner.time.calibration import Calibration
from strobe.planner.time.passes import LinearCost
from strobe.report.charts.simulation import simulation_svg

SVG = "{http://www.w3.org/2000/svg}"
LINE = LinearCost(per_cell=1e-6, per_arc=0.0, fixed=1e-3)


def simulated(num_ranks: int, epoch_s: float, alone_s: float = 1.0) -> SimulatedEpoch:
    return SimulatedEpoch(
        num_ranks=num_ranks,
        num_steps=3,
        epoch_s=epoch_s,
        compute_s=np.full(num_ranks, alone_s / num_ranks),
        exchange_s=0.0,
        sync_s=0.0,
        single_rank_s=alone_s,
    )


def simulation(found: dict[str, list[SimulatedEpoch]], graph: str = "friends") -> Simulation:
    costs = Calibration(pass_cost=LINE, time_stage_cost=LINE, step_s=1e-3, error=0.1, weight_bytes=100)
    return Simulation(
        graph=graph,
        model="tgcn",
        network=Network(),
        calibrations=dict.fromkeys(found, costs),
        results=found,
        reasons={},
    )


def drawn(found: dict[str, list[SimulatedEpoch]], graph: str = "friends") -> ElementTree.Element:
    return ElementTree.fromstring(simulation_svg(simulation(found, graph)))


def texts(picture: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in picture.iter(f"{SVG}text")]


def points(picture: ElementTree.Element) -> list[tuple[float, float]]:
    return [(float(each.attrib["cx"]), float(each.attrib["cy"])) for each in picture.iter(f"{SVG}circle")]


def heights(picture: ElementTree.Element, name: str) -> list[float]:
    return [float(each.attrib["y"]) for each in picture.iter(f"{SVG}text") if each.text == name]


def test_every_plan_has_a_line_its_points_and_its_name_in_both_panels() -> None:
    picture = drawn({name: [simulated(n, 1.2 / n) for n in (1, 2, 4)] for name in ("relay", "psg")})
    assert len([path for path in picture.iter(f"{SVG}path") if path.get("class") == "line"]) == 4
    assert len(points(picture)) == 2 * 2 * 3
    assert texts(picture).count("relay") == texts(picture).count("psg") == 2
    assert "tgcn on friends, simulated" in texts(picture)


def test_numbers_of_ranks_that_double_are_equally_far_apart() -> None:
    picture = drawn({"relay": [simulated(n, 1.2 / n) for n in (4, 8, 16, 1024)]})
    at = [x for x, _ in points(picture)[:4]]
    assert at[1] - at[0] == pytest.approx(at[2] - at[1], abs=0.2)
    assert at[3] - at[2] == pytest.approx(6 * (at[2] - at[1]), abs=0.5)
    assert {"4", "8", "16", "1,024"} <= set(texts(picture))


def test_efficiency_is_higher_up_where_there_is_more_of_it() -> None:
    picture = drawn({"half": [simulated(2, 1.0)], "all": [simulated(2, 0.5)], "quarter": [simulated(2, 2.0)]})
    half, whole, quarter = (y for _, y in points(picture)[:3])
    assert half - whole == pytest.approx(2 * (quarter - half), abs=0.2)
    [full] = heights(picture, "100%")
    assert whole == pytest.approx(full - 4, abs=0.2)  # a label is a little below its line


def test_epochs_ten_times_as_long_are_equally_far_apart() -> None:
    picture = drawn({"relay": [simulated(n, seconds) for n, seconds in ((1, 1.0), (2, 0.1), (4, 0.01))]})
    first, second, third = (y for _, y in points(picture)[3:])
    assert second - first == pytest.approx(third - second, abs=0.2)
    assert {"1 s", "100 ms", "10 ms"} <= set(texts(picture))


def test_names_of_lines_that_end_together_do_not_cover_each_other() -> None:
    names = [f"plan-{k}" for k in range(12)]
    picture = drawn({name: [simulated(n, 1.1 / n) for n in (1, 2)] for name in names})
    for panel in (0, 1):
        places = sorted(heights(picture, name)[panel] for name in names)
        assert min(np.diff(places)) >= 14.9


def test_numbers_of_ranks_that_have_no_room_are_left_out_but_their_points_are_not() -> None:
    picture = drawn({"relay": [simulated(n, 1.2 / n) for n in range(1000, 1030)]})
    assert len(points(picture)) == 60
    assert "1,000" in texts(picture)
    assert "1,001" not in texts(picture)


def test_a_single_number_of_ranks_has_no_line_to_compare_with() -> None:
    assert "dashed" not in simulation_svg(simulation({"relay": [simulated(8, 0.2)]}))
    assert "dashed" in simulation_svg(simulation({"relay": [simulated(8, 0.2), simulated(16, 0.1)]}))


@pytest.mark.parametrize("seconds", [0.0, 1e-8, 1e-3, 7.0, 123_456.0])
def test_epochs_of_any_length_are_drawn_within_the_picture(seconds: float) -> None:
    picture = drawn({"relay": [simulated(1, seconds, seconds), simulated(2, seconds, seconds)]})
    height = float(picture.attrib["height"])
    assert all(0 <= y <= height for _, y in points(picture))


def test_points_tell_their_figures_and_names_are_no_markup() -> None:
    picture = drawn({"<b> & co": [simulated(4, 0.5)]}, graph='a"<i>')
    told = next(picture.iter(f"{SVG}circle"))[0].text
    assert told == "<b> & co on 4 ranks: 500 ms an epoch, 2.0 times as fast as one rank would compute, efficiency 50%"
    assert 'tgcn on a"<i>, simulated' in texts(picture)


def test_long_names_keep_both_ends() -> None:
    picture = drawn({f"relay:size=16,groups={k}": [simulated(4, 0.5)] for k in (4, 8)})
    assert {"relay:siz…groups=4", "relay:siz…groups=8"} <= set(texts(picture))


def test_where_no_plan_fits_there_is_nothing_to_draw() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        simulation_svg(simulation({}))


def test_the_line_to_compare_with_falls_as_fast_as_ranks_rise_also_below_the_panel() -> None:
    picture = drawn({"relay": [simulated(1, 1.0), simulated(2, 0.5), simulated(1024, 0.4)]})
    [level] = [path.attrib["d"] for path in picture.iter(f"{SVG}path") if path.get("class") == "level"]
    (x0, y0), (x1, y1) = (map(float, place.split()) for place in level[1:].split("L"))
    (left, high), (right, low) = points(picture)[3:5]
    assert (x0, y0) == (left, high)
    assert (y1 - y0) / (x1 - x0) == pytest.approx((low - high) / (right - left), rel=1e-2)
