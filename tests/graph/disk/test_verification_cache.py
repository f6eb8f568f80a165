"""A graph is checked once; whenever a file of it changes, once more."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
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
    verification_cache,
)
from tests.support.graphs import full_graph


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Power does not fail here, and waiting for the disk takes most of the time."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


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
    assert sorted(path.name for path in cache.iterdir()) == ["checked-graphs"]


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


@pytest.mark.parametrize("hurdle", ["file", "unwritable", "garbage"])
def test_a_cache_that_cannot_be_used_does_no_harm(hurdle: str, place: Path, cache: Path) -> None:
    if hurdle == "file":
        cache.parent.write_text("no folder")
    elif hurdle == "unwritable":
        (cache / "checked-graphs").mkdir(parents=True)
    else:
        cache.mkdir(parents=True)
        (cache / "checked-graphs").write_bytes(b"\xff\x00no digest\n\n" * 9)
    assert _checks(place) == 1
    assert _checks(place) == (0 if hurdle == "garbage" else 1)


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


def test_cache_is_shared_between_processes(tmp_path: Path) -> None:
    here, there = (VerificationCache(tmp_path / "new" / "file") for _ in range(2))
    digests = [f"{k:032x}" for k in range(200)]
    assert digests[0] not in here
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda k: (here if k % 2 else there).add(digests[k]), range(200)))
    assert all(digest in here for digest in digests)
    assert all(digest in there for digest in digests)
    (tmp_path / "new" / "file").unlink()
    assert digests[0] not in here


def test_cache_evicts_oldest_entries(tmp_path: Path) -> None:
    known = VerificationCache(tmp_path / "file", max_entries=10)
    digests = [f"{k:032x}" for k in range(100)]
    for digest in digests:
        known.add(digest)
        assert digest in known
    assert digests[0] not in known
    assert (tmp_path / "file").stat().st_size <= 10 * 33


def test_the_users_cache_folder_is_used(cache: Path) -> None:
    assert verification_cache().path == cache / "checked-graphs"
