"""What tests of the engine share."""

from __future__ import annotations

import pytest

from tests.support.ranks import begin_alike


@pytest.fixture(autouse=True)
def ranks_begin_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that are threads."""
    begin_alike(monkeypatch)
