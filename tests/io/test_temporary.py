from __future__ import annotations

import os
from pathlib import Path

from strobe.io.temporary import TemporaryFolder
from tests.support.kills import forked


def test_a_temporary_folder_is_removed_at_its_end(tmp_path: Path) -> None:
    with TemporaryFolder("sort", tmp_path) as folder:
        (folder.path / "runs").write_text("1")
        assert folder.path.is_dir()
    assert [*tmp_path.iterdir()] == []


def test_folders_of_killed_processes_are_removed_by_the_next_and_those_in_use_are_not(tmp_path: Path) -> None:
    def work() -> None:
        folder = TemporaryFolder("sort", tmp_path)
        (folder.path / "runs").write_text("1")
        os._exit(9)

    os.waitpid(forked(work), 0)
    (tmp_path / "strobe-sort-empty").mkdir()  # one was killed before it had its lock
    assert len([*tmp_path.iterdir()]) == 2
    with TemporaryFolder("sort", tmp_path) as first, TemporaryFolder("sort", tmp_path) as second:
        assert {*tmp_path.iterdir()} == {first.path, second.path}
