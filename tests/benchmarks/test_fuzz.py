"""Slices of the fuzz campaigns, each with its own oracle: the whole is ``python -m benchmarks.fuzz``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.fuzzing.campaign import run_input
from benchmarks.fuzzing.graph_directories import GraphDirectories
from benchmarks.fuzzing.run_files import RunFiles
from benchmarks.fuzzing.tables import Tables
from benchmarks.fuzzing.target import FuzzTarget
from benchmarks.fuzzing.texts import Texts


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numbers of 1e300 overflow, as they may
@pytest.mark.parametrize(
    ("target", "inputs", "at_least"),
    [
        (Texts(), range(30), {"accepted": 9}),
        (Tables(), range(30), {"accepted": 6}),
        (RunFiles(), range(25), {"accepted": 1, "refused": 1}),
        (GraphDirectories(("tgcn", "evolvegcn-o")), range(40), {"refused": 12, "trained": 3, "unchanged": 1}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_no_input_is_misread_or_ends_in_a_foreign_error(
    target: FuzzTarget, inputs: range, at_least: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if isinstance(target, RunFiles | GraphDirectories):
        monkeypatch.setattr("os.fsync", lambda handle: None)
        (tmp_path / "cache").mkdir()
        target.setup(tmp_path / "cache")
    outcomes = Counter[str]()
    for number in inputs:
        outcome, detail = run_input(target, f"slice.{number}", tmp_path / "input")
        assert not detail, f"{target.name}:slice.{number} {outcome}\n{detail}"
        outcomes.update(word for word in at_least if word in outcome)
    assert all(outcomes[word] >= count for word, count in at_least.items()), outcomes
