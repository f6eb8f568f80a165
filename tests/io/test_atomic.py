from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from strobe.io.atomic import finished_name, unfinished_name, write_atomic, write_json


@pytest.fixture(scope="module")
def dead() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_an_unfinished_file_of_a_dead_process_is_removed_by_the_next_write(tmp_path: Path, dead: int) -> None:
    (tmp_path / f".answers.csv.writing-{dead}").write_text("half")
    write_atomic(tmp_path / "answers.csv", lambda file: file.write(b"whole"))
    assert {path.name for path in tmp_path.iterdir()} == {"answers.csv"}


def test_unfinished_files_of_running_processes_stay(tmp_path: Path, dead: int) -> None:
    others = [f".answers.csv.writing-{os.getppid()}", f".other.csv.writing-{dead}", ".answers.csv.writing-x", "a.csv"]
    for name in others:
        (tmp_path / name).write_text("half")
    write_json(tmp_path / "answers.csv", {})
    assert {path.name for path in tmp_path.iterdir()} == {"answers.csv", *others}


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "answers.csv").write_text("before")
    with pytest.raises(ZeroDivisionError):
        write_atomic(tmp_path / "answers.csv", lambda file: file.write(b"half" * (1 // 0)))
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


def test_unfinished_name_contains_final_name() -> None:
    assert finished_name(unfinished_name("best.pt")) == "best.pt"
    for name in ("best.pt", ".best.pt", ".best.pt.writing-", ".best.pt.writing-12a"):
        assert finished_name(name) is None
