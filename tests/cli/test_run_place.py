from __future__ import annotations

from pathlib import Path

import pytest

from strobe.cli.run_place import PlaceOptions, run_place
from strobe.errors import OptionError


def test_a_run_that_torchrun_may_start_again_needs_a_place_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "2")
    with pytest.raises(OptionError, match="say which with --out"):
        run_place(PlaceOptions(), "friends", "tgcn")
    assert run_place(PlaceOptions(to=Path("run")), "friends", "tgcn") == Path("run")
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "0")
    assert run_place(PlaceOptions(), "some/friends of mine", "tgcn") == Path("runs/friends-of-mine-tgcn")
