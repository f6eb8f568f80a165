from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="module")
def quick_disk() -> Iterator[None]:
    """Power does not fail in tests, and waiting for the disk takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


def only_graph(place: Path) -> bool:
    """Whether the place is all there is in its directory."""
    return [path.name for path in place.parent.iterdir()] == [place.name]
