from __future__ import annotations

from xml.etree import ElementTree

from strobe.engine.evaluation.calibrate import CalibratedLinks
from strobe.report.run import reliability_svg
from strobe.tasks.calibration import Bin, LinkCalibration

SVG = "{http://www.w3.org/2000/svg}"


def calibrated(*bins: Bin) -> CalibratedLinks:
    return CalibratedLinks(calibration=LinkCalibration(normalization="negatives", negatives=5), error=0.0012, bins=bins)


def test_every_bin_is_a_dot_and_perfect_ones_are_on_the_diagonal() -> None:
    svg = reliability_svg(calibrated(Bin(0.9, 1e-4, 0.0), Bin(0.09, 0.01, 0.01), Bin(0.01, 0.5, 0.25)))
    assert svg is not None
    root = ElementTree.fromstring(svg)
    dots = [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in root.iter(f"{SVG}circle")]
    assert len(dots) == 3
    left, bottom = 70, 76 + 380
    assert dots[0][1] == bottom  # a bin without an edge
    assert abs((dots[1][0] - left) - (bottom - dots[1][1])) < 0.2
    assert dots[2][0] - left > bottom - dots[2][1]
    assert "0.0012" in svg


def test_nothing_is_drawn_without_bins() -> None:
    assert reliability_svg(calibrated()) is None
