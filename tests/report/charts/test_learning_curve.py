from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from strobe.report.charts.learning_curve import Curve, build_curves, learning_curve_svg, terminal_curve
from strobe.report.charts.svg import Scale

RESULT: dict[str, Any] = {
    "model": "t<gcn>",
    "graph": "friends & foes",
    "metric": "mse",
    "best_epoch": 2,
    "epochs": 3,
    "baselines": {"validation": {"last value": {"mse": 0.3}, "mean": {"mse": 900.0}}},
}


def history(*scores: float | None) -> list[dict[str, Any]]:
    return [
        {"epoch": k, "loss": 2.0 / k, **({} if score is None else {"validation": {"mse": score}})}
        for k, score in enumerate(scores, 1)
    ]


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_chart_has_both_curves_the_best_epoch_and_the_baselines() -> None:
    shown = texts(learning_curve_svg(RESULT, history(0.4, 0.2, 0.25)))
    for text in ("t<gcn> on friends & foes", "training loss", "validation mse", "0.2000 at epoch 2"):
        assert text in shown
    assert "last value 0.3000" in shown
    assert "off the picture: mean 900.00" in shown


@pytest.mark.parametrize(
    "scores", [(), (0.5,), (None, None), (0.1, None, 0.1), (1e-9, 1e9), (-1.0, 2.0), (float("nan"), 0.5), (0.0, 0.0)]
)
def test_any_history_can_be_drawn(scores: tuple[float | None, ...]) -> None:
    ElementTree.fromstring(learning_curve_svg(RESULT, history(*scores)))
    for curve in build_curves(RESULT, history(*scores)):
        lines = terminal_curve(curve, width=40, height=5)
        assert len(lines) == 8
        assert max(map(len, lines)) <= 80


def test_terminal_curve_falls_with_the_values() -> None:
    curve = Curve(title="loss", points=[(1, 3.0), (2, 2.0), (3, 1.0)], levels={})
    rows = [line.partition("│")[2] for line in terminal_curve(curve, width=9, height=3)[1:4]]
    first = [min((k for k, cell in enumerate(row) if cell != " "), default=99) for row in rows]
    assert first == sorted(first)
    assert first[0] == 0


def test_many_magnitudes_give_a_logarithmic_scale() -> None:
    scale = Curve(title="loss", points=[(1, 2000.0), (2, 0.5)], levels={}).scale()
    assert scale.logarithmic
    assert scale.ticks() == [1.0, 10.0, 100.0, 1000.0]
    assert Scale(0.0, 1.0, False).ticks() == [0.0, 0.25, 0.5, 0.75, 1.0]
