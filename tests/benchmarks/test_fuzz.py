"""Slices of the fuzz campaigns, and the oracles they compare with: the whole is ``python -m benchmarks.fuzz``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.fuzzing import slow_clocks, slow_reader, slow_values
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
        *((Texts(), range(25 * part, 25 * (part + 1)), {"accepted": 9}) for part in range(3)),
        *((Tables(), range(30 * part, 30 * (part + 1)), {"accepted": 6}) for part in range(3)),
        (RunFiles(), range(50), {"accepted": 1, "refused": 1}),
        (GraphDirectories(("tgcn", "evolvegcn-o")), range(80), {"refused": 12, "trained": 12, "unchanged": 1}),
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


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-02", 86400.0),
        ("1970-01", 0.0),
        ("1970-01-01T00:00:01.5Z", 1.5),
        ("1970-01-01T02:00:00+02:00", 0.0),
        ("1970-01-01T24:00:00", 86400.0),
        ("1970-02-30", None),
        ("soon", None),
    ],
)
def test_the_oracle_knows_dates(text: str, seconds: float | None) -> None:
    assert slow_values.date(text) == seconds


def test_the_oracle_names_snapshots_that_begin_before_the_year_1() -> None:
    events: list[slow_clocks.Event] = [("a", "b", float(slow_values.YEAR_1), None, None)]
    assert slow_clocks.every(12345, events, dated=True).names == ["0000-12-31T21:09:15"]
    assert slow_clocks.every(7 * 86400, events, dated=True).names == ["0000-12-28"]
    assert slow_clocks.every(0.5, events, dated=False).names is None


def test_the_slow_reader_follows_the_documented_rules() -> None:
    data = b'# c\na,b\n#,1\n\n# d\n"x\ny",2\n"open,3\nlast,4\n'
    found = slow_reader.read(data, delimiter=None, header=True, encoding="utf-8", is_tsv=False)
    assert found.columns == ["a", "b"]
    assert found.rows == [(3, ["#", "1"]), (6, ["x\ny", "2"]), (9, ["last", "4"])]
    assert (found.bad, found.comments) == ([8], 2)
