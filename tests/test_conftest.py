from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import MARKED

ROOT = Path(__file__).parent.parent


def test_marked_files_exist() -> None:
    assert [path for paths in MARKED.values() for path in paths if not (ROOT / path).exists()] == []


def test_tests_without_another_marker_are_fast(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("fast") is not None
