from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.parts import Part, parts_parser, run_parts
from benchmarks.record import Record, option_parser


def parts_of(record: Record, **figures: float) -> dict[str, Part]:
    return {name: partial(record.figures.update, {name: value}) for name, value in figures.items()}


def measured(out: Path, *said: str, **figures: float) -> dict[str, Any]:
    """The figures on disk after a full run of a benchmark whose parts can be measured alone."""
    record = Record("made-up", quick=False)
    chosen = parts_parser(None, figures).parse_args(["--json", str(out), *said])
    run_parts(record, parts_of(record, **figures), chosen, {})
    found: dict[str, Any] = json.loads(out.read_text())["figures"]
    return found


def test_one_part_alone_leaves_the_others_as_they_were(tmp_path: Path) -> None:
    out = tmp_path / "record.json"
    assert measured(out, one=1.0, two=2.0) == {"one": 1.0, "two": 2.0}
    assert measured(out, "--only", "two", one=10.0, two=20.0) == {"one": 1.0, "two": 20.0}
    assert measured(out, one=5.0) == {"one": 5.0}


def test_a_record_of_less_work_is_not_resumed(tmp_path: Path) -> None:
    out = tmp_path / "record.json"
    out.write_text(json.dumps({"quick": True, "figures": {"one": 1.0}, "samples": {}, "missing": {}}))
    assert measured(out, "--only", "two", one=10.0, two=20.0) == {"two": 20.0}


@pytest.mark.parametrize("alone", [True, False])
def test_parts_are_written_before_the_next_fails(tmp_path: Path, alone: bool) -> None:
    record, out = Record("made-up", quick=False), tmp_path / "record.json"

    def fail() -> None:
        raise ValueError("the second")

    parser = parts_parser(None, ("one", "two")) if alone else option_parser(None)
    with pytest.raises(ValueError, match="the second"):
        run_parts(record, parts_of(record, one=1.0) | {"two": fail}, parser.parse_args(["--json", str(out)]), {})
    assert out.exists() == alone


def test_the_table_has_the_papers_figures_and_missing_ones(capsys: pytest.CaptureFixture[str]) -> None:
    record = Record("made-up", quick=True, missing={"three": "no graph"})
    run_parts(record, parts_of(record, one=1.0, two=2.0), option_parser(None).parse_args(["--quick"]), {"two": 0.5})
    said = capsys.readouterr().out.splitlines()
    assert said[-3:] == ["one     1", "two     2     0.5", "missing three: no graph"]
    assert said[0] == "(one: 0 s)"
