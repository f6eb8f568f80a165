from __future__ import annotations

from pathlib import Path

import pytest

from strobe.graph.synthetic import Social


@pytest.fixture
def friends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A graph called friends in the current directory."""
    monkeypatch.chdir(tmp_path)
    Social(nodes=40, snapshots=10, edges=80, communities=4, labels=True).write().save("friends")
    return tmp_path / "friends"
