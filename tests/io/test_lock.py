from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from strobe.errors import OptionError
from strobe.io.lock import WriteLock


def test_one_holder_at_a_time_and_nothing_left_behind(tmp_path: Path) -> None:
    lock = WriteLock(tmp_path / "graph")
    with pytest.raises(OptionError, match="graph is being written by another process"):
        WriteLock(tmp_path / "graph")
    WriteLock(tmp_path / "another").release()
    lock.release()
    lock.release()
    assert not any(tmp_path.iterdir())
    WriteLock(tmp_path / "graph").release()


def test_a_lock_file_without_a_holder_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / ".graph.lock").touch()
    WriteLock(tmp_path / "graph").release()
    assert not any(tmp_path.iterdir())


def test_a_file_that_was_removed_while_it_was_being_locked_is_not_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder before removes its file between our opening and our locking it."""
    calls = 0

    def flock(file: object, how: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            (tmp_path / ".graph.lock").unlink()

    monkeypatch.setattr(fcntl, "flock", flock)
    lock = WriteLock(tmp_path / "graph")
    assert calls == 2
    assert (tmp_path / ".graph.lock").exists()
    lock.release()


def test_a_file_system_without_locks_can_still_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(file: object, how: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    WriteLock(tmp_path / "graph").release()
    assert not any(tmp_path.iterdir())
