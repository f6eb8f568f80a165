from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "own_batching.py"


@pytest.mark.usefixtures("ranks_are_threads")
def test_own_batching_trains_resumes_and_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    losses = runpy.run_path(str(EXAMPLE))["main"](nodes=40, epochs=2, simulate_s=0.3)
    printed = capsys.readouterr().out
    assert losses["2 ranks, resumed"] == pytest.approx(losses["1 rank"], rel=1e-9)
    assert len(losses["1 rank"]) == 2
    assert "batching recent" in printed
    assert printed.count("s an epoch") >= 3
