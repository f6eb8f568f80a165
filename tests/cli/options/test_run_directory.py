from __future__ import annotations

from pathlib import Path

import pytest

from strobe.cli.options.run_directory import RunDirectoryOptions, resolve_run_directory
from strobe.errors import OptionError


def test_run_that_torchrun_may_restart_needs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "2")
    with pytest.raises(OptionError, match="--out"):
        resolve_run_directory(RunDirectoryOptions(), "friends", "tgcn")
    assert resolve_run_directory(RunDirectoryOptions(to=Path("run")), "friends", "tgcn") == Path("run")
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "0")
    assert resolve_run_directory(RunDirectoryOptions(), "some/friends of mine", "tgcn") == Path(
        "runs/friends-of-mine-tgcn"
    )
