from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.web import Site, serve


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serve(Site()) as served:
        yield served
