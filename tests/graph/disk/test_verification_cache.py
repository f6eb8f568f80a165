"""A graph is checked once; whenever a file of it changes, once more."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

import pytest

from strobe.errors import FormatError
from strobe.graph import open_graph
from strobe.graph.disk import directory
from strobe.graph.disk.verification import (
    VerificationCache,
    check_contents,
    graph_digest,
    mtimes_are_stable,
)
from tests.support.graphs import full_graph


@pytest.fixture
def place(tmp_path: Path) -> Path:
    full_graph().save(tmp_path / "graph")
    return tmp_path / "graph"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's cache that is empty, and files that have always settled."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(directory, "mtimes_are_stable", lambda files: True)
    return tmp_path / "cache" / "strobe"


def _checks(place: Path) -> int:
    with patch.object(directory, "check_contents", wraps=check_contents) as check:
        assert open_graph(place) == full_graph()
    return check.call_count


def test_graph_is_verified_once_without_writing_to_its_directory(place: Path, cache: Path) -> None:
    before = sorted(place.parent.iterdir())
    assert [_checks(place) for _ in range(3)] == [1, 0, 0]
    assert sorted(place.parent.iterdir()) == [cache.parent, *before]
    assert sorted(path.name for path in cache.iterdir()) == ["verified-graphs"]


@pytest.mark.parametrize("name", ["col.npy", "x.npy"])
def test_a_file_that_changed_is_checked_again(name: str, place: Path) -> None:
    _checks(place)
    os.utime(place / name, ns=(0, 0))
    assert _checks(place) == 1
    (place / "copy").write_bytes((place / name).read_bytes())
    (place / "copy").rename(place / name)
    assert [_checks(place), _checks(place)] == [1, 0]
    data = bytearray((place / name).read_bytes())
    data[-1] ^= 1
    (place / name).write_bytes(data)
    os.utime(place / name, ns=(0, 0))
    with pytest.raises(FormatError, match=f"{name} is damaged"):
        open_graph(place)
    with pytest.raises(FormatError, match=f"{name} is damaged"):
        open_graph(place)


def test_verify_checks_what_was_checked_before(place: Path) -> None:
    _checks(place)
    with patch.object(directory, "check_contents") as check:
        open_graph(place, verify=True)
    assert check.called


def test_a_cache_that_cannot_be_used_does_no_harm(place: Path, cache: Path) -> None:
    cache.parent.write_text("no folder")
    assert [_checks(place), _checks(place)] == [1, 1]


def test_recently_written_file_has_unstable_mtime(place: Path) -> None:
    files = [path.stat() for path in place.glob("*.npy")]
    newest = max(file.st_ctime for file in files)
    assert not mtimes_are_stable(files, newest)
    assert not mtimes_are_stable(files, newest + 1)
    assert mtimes_are_stable(files, newest + 10)


def test_digest_depends_on_metadata(place: Path) -> None:
    files = {path.name: path.stat() for path in place.glob("*.npy")}
    assert graph_digest({"num_nodes": 4}, files) != graph_digest({"num_nodes": 5}, files)
    assert graph_digest({}, files) != graph_digest({}, dict(list(files.items())[1:]))


def test_cache_is_shared_and_evicts_the_oldest_entries(tmp_path: Path) -> None:
    ours, theirs = (VerificationCache(tmp_path / "cache", max_entries=256 * 10) for _ in range(2))
    digests = [f"{k:032x}" for k in range(100)]  # of one shard
    for k, digest in enumerate(digests):
        assert digest not in theirs
        ours.add(digest)
        os.utime(tmp_path / "cache" / "00" / digest, ns=(k, k))
        assert digest in theirs
    assert digests[0] not in ours
    assert 5 <= sum(digest in ours for digest in digests) <= 10
