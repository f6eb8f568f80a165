from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "own_model.py"


def test_own_models_beat_the_baselines(capsys: pytest.CaptureFixture[str]) -> None:
    scores = runpy.run_path(str(EXAMPLE))["main"](epochs=12)
    shown = capsys.readouterr().out
    assert list(scores) == ["last value", "mean", "stacked", "NeighborDifference"]
    trivial = min(scores["last value"]["mse"], scores["mean"]["mse"])
    for name in ("stacked", "NeighborDifference"):
        assert scores[name]["mse"] < trivial
        assert f"mse {scores[name]['mse']:.4f}" in shown
