"""A slice of the fuzz campaign: text tables against the slow reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fuzzing import slow_reader
from benchmarks.fuzzing.campaign import run_input
from benchmarks.fuzzing.texts import Texts


@pytest.mark.parametrize("part", range(3))
def test_no_input_of_the_slice_is_read_otherwise_than_by_the_slow_reader(part: int, tmp_path: Path) -> None:
    target = Texts()
    outcomes = []
    for k in range(25 * part, 25 * (part + 1)):
        verdict, detail = run_input(target, f"slice.{k}", tmp_path / "input")
        assert verdict not in ("silent", "foreign"), f"texts:slice.{k}\n{detail}"
        outcomes.append(verdict)
    assert sum(verdict.startswith("accepted") for verdict in outcomes) > 8


def test_the_slow_reader_follows_the_documented_rules() -> None:
    data = b'# c\na,b\n#,1\n\n# d\n"x\ny",2\n"open,3\nlast,4\n'
    found = slow_reader.read(data, delimiter=None, header=True, encoding="utf-8", is_tsv=False)
    assert found.columns == ["a", "b"]
    assert found.rows == [(3, ["#", "1"]), (6, ["x\ny", "2"]), (9, ["last", "4"])]
    assert (found.bad, found.comments) == ([8], 2)
