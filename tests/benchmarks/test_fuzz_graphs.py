"""A slice of the campaign on graph directories: the whole is ``python -m benchmarks.fuzz --targets graphs``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.fuzzing.campaign import run_input
from benchmarks.fuzzing.graph_directories import GraphDirectories


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numbers of 1e300 overflow, as they may
def test_no_damaged_graph_is_misread_or_breaks_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("os.fsync", lambda handle: None)
    target = GraphDirectories(("tgcn", "evolvegcn-o"))
    (tmp_path / "cache").mkdir()
    target.setup(tmp_path / "cache")
    outcomes = Counter[str]()
    for number in range(120):
        outcome, detail = run_input(target, f"slice.{number}", tmp_path / "input")
        assert not detail, f"slice.{number}: {detail}"
        outcomes[outcome] += 1
    assert outcomes["refused"] > 20
    assert outcomes["trained"] > 20
    assert outcomes["unchanged"] > 2
