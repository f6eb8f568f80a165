"""Reliability diagram: predicted probabilities of edges against the share of pairs that had one."""

from __future__ import annotations

from strobe.engine.evaluation.calibrate import CalibratedLinks
from strobe.report.charts.svg import PALETTE, Panel, Scale, circle, document, line, path, text

_LEFT, _TOP, _SIZE, _RIGHT, _BELOW = 70, 76, 380, 90, 56


def reliability_svg(calibrated: CalibratedLinks) -> str | None:
    """Draw the bins of a calibration, on logarithmic axes because most probabilities are small.

    A bin holds the same number of expected edges. A bin without an edge is on the lower border.

    Returns:
        SVG text; None without bins.
    """
    shares = [value for each in calibrated.bins for value in (each.predicted, each.actual) if value > 0]
    if not shares:
        return None
    scale = Scale(min(min(shares) / 1.5, 0.1), 1.0, logarithmic=True)
    panel = Panel(_LEFT, _TOP, _SIZE, _SIZE, scale)

    def x(value: float) -> float:
        return round(_LEFT + _SIZE * scale.position(max(value, scale.low)), 1)

    def y(value: float) -> float:
        return panel.y(max(value, scale.low))

    points = [(x(each.predicted), y(each.actual)) for each in calibrated.bins]
    dots = [
        circle(*point, 4, fill=PALETTE[0], title=f"predicted {each.predicted:.3g}, actual {each.actual:.3g}")
        for point, each in zip(points, calibrated.bins, strict=True)
    ]
    columns = []
    for tick in scale.ticks():
        columns.append(path(f"M{x(tick)} {_TOP}V{panel.bottom}", css="grid"))
        columns.append(text(x(tick), panel.bottom + 18, f"{tick:g}", anchor="middle"))
    diagonal = path(f"M{x(scale.low)} {y(scale.low)}L{x(1)} {y(1)}", css="level")
    error = "" if calibrated.error is None else f"calibration error {calibrated.error:.2g}"
    height = _TOP + _SIZE + _BELOW
    body = [
        *panel.grid(),
        *columns,
        diagonal,
        line(points, stroke=PALETTE[0]),
        *dots,
        text(_LEFT, height - 8, "predicted probability; dots hold equally many expected edges"),
        text(_LEFT - 40, _TOP - 8, "share of pairs with an edge"),
    ]
    return document(
        "Reliability, test part", body, width=_LEFT + _SIZE + _RIGHT, height=height, left=_LEFT, subtitle=error
    )
