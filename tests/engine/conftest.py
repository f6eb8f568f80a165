"""What tests of the engine share."""

from __future__ import annotations

import pytest

from tests.support.forks import fork_ranks
from tests.support.ranks import begin_alike


@pytest.fixture(autouse=True)
def ranks_begin_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that are threads."""
    begin_alike(monkeypatch)


@pytest.fixture
def ranks_are_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks are processes, which need not load torch."""
    fork_ranks(monkeypatch)
