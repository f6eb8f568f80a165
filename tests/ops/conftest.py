"""Operations share their rows out over threads: they are tested with two."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import threads


@pytest.fixture(autouse=True)
def usual_threads() -> Iterator[None]:
    with threads(2):
        yield


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Where two are of no use."""
    with threads(1):
        yield
