from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import strobe
from strobe.graph.synthetic import Social


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run of two epochs on a graph called friends."""
    folder = tmp_path_factory.mktemp("trained")
    Social(nodes=40, snapshots=10, edges=80, communities=4).write().save(folder / "friends")
    strobe.train(folder / "friends", "tgcn", out=folder / "run", epochs=2)
    return folder / "run"


@pytest.fixture(scope="session")
def saved_friends(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "friends"
    Social(nodes=40, snapshots=10, edges=80, communities=4, labels=True).write().save(path)
    return path


@pytest.fixture
def friends(saved_friends: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A graph called friends in the current directory."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(saved_friends, tmp_path / "friends"))
