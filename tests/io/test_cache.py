from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.errors import OptionError
from strobe.io.cache import NO_CACHE, Arrays, Cache, decode_json, encode_json, parse_size
from tests.support.kills import forked

ARRAYS: Arrays = {
    "owner": np.arange(6, dtype=np.int16),
    "loads": np.linspace(0, 1, 4),
    "no": np.empty((0, 3), np.int32),
}
KEY = {"graph": "a1", "seed": 0, "windows": [[0, 3], [3, 6]], "share": 0.5}


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(folder=tmp_path, min_seconds=0.0)


def save(cache: Cache, key: Any = KEY, kind: str = "partition", arrays: Any = ARRAYS) -> str | None:
    return cache.save(kind, key, arrays, subject="friends", seconds=1.0)


def assert_equal(found: Any, arrays: Any = ARRAYS) -> None:
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert found[name].flags.writeable
        np.testing.assert_array_equal(found[name], array)


def test_an_entry_is_loaded_as_it_was_saved(cache: Cache) -> None:
    assert cache.load("partition", KEY) is None
    assert save(cache) is None
    assert_equal(cache.load("partition", dict(reversed(KEY.items()))))
    (entry,) = cache.entries()
    assert (entry.kind, entry.subject, entry.size) == ("partition", "friends", entry.path.stat().st_size)


@pytest.mark.parametrize("change", [{"graph": "a2"}, {"seed": 1}, {"seed": None}, {"windows": [[0, 6]]}, {"more": 0}])
def test_another_key_or_kind_finds_nothing(cache: Cache, change: dict[str, Any]) -> None:
    save(cache)
    assert cache.load("partition", KEY | change) is None
    assert cache.load("fit", KEY) is None


def test_another_version_of_strobe_finds_nothing(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    save(cache)
    monkeypatch.setattr("strobe.__version__", "99.0")
    assert cache.load("partition", KEY) is None


@given(st.data())
def test_an_entry_with_any_byte_changed_or_cut_is_absent_and_replaced(data: st.DataObject) -> None:
    cache = Cache(folder=Path(os.environ["XDG_CACHE_HOME"]) / "damaged", min_seconds=0.0)
    save(cache)
    (entry,) = cache.entries()
    content = bytearray(entry.path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:at]
    else:
        content[at] ^= data.draw(st.integers(1, 255))
    entry.path.write_bytes(content)
    assert cache.load("partition", KEY) is None
    save(cache)
    assert_equal(cache.load("partition", KEY))


def test_a_key_with_nan_is_not_cached_and_no_error(cache: Cache) -> None:
    key = KEY | {"mean": float("nan")}
    assert save(cache, key) is None
    assert cache.load("partition", key) is None
    assert cache.entries() == []


def test_an_entry_in_the_place_of_another_is_absent(cache: Cache) -> None:
    save(cache)
    (first,) = cache.entries()
    save(cache, KEY | {"seed": 1})
    (second,) = (entry for entry in cache.entries() if entry.path != first.path)
    second.path.write_bytes(first.path.read_bytes())
    assert cache.load("partition", KEY | {"seed": 1}) is None
    assert_equal(cache.load("partition", KEY))


def test_entries_used_least_recently_go_first(cache: Cache) -> None:
    for seed in range(4):
        save(cache, KEY | {"seed": seed})
        for entry in cache.entries()[-1:]:
            os.utime(entry.path, (seed, seed))
    assert cache.load("partition", KEY | {"seed": 0}) is not None  # the oldest is used
    size = max(entry.size for entry in cache.entries())
    small = Cache(folder=cache.folder, min_seconds=0.0, limit_bytes=3 * size)
    save(small, KEY | {"seed": 4})
    found = [seed for seed in range(5) if cache.load("partition", KEY | {"seed": seed}) is not None]
    assert found == [0, 3, 4]


def test_what_is_larger_than_the_limit_or_as_quick_to_compute_is_not_saved(tmp_path: Path) -> None:
    assert save(Cache(folder=tmp_path, limit_bytes=10, min_seconds=0.0)) is None
    usual = Cache(folder=tmp_path)
    usual.save("fit", KEY, ARRAYS, seconds=0.001)
    usual.save("fit", KEY, {"large": np.zeros(1 << 27, np.int8)}, seconds=0.1)
    assert usual.entries() == []
    usual.save("fit", KEY, ARRAYS, seconds=0.1)
    assert len(usual.entries()) == 1


def test_no_cache_touches_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save(NO_CACHE)
    assert NO_CACHE.load("partition", KEY) is None
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_and_a_full_disk_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    trouble = save(Cache(folder=tmp_path / "file" / "folder", min_seconds=0.0))
    assert trouble is not None
    assert "could not be cached" in trouble

    def fsync(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    full = Cache(folder=tmp_path / "full", min_seconds=0.0)
    trouble = save(full)
    assert trouble is not None
    assert "No space left" in trouble
    assert full.entries() == []


def test_clearing_removes_entries_and_unfinished_files_and_nothing_else(cache: Cache) -> None:
    save(cache)
    save(cache, kind="fit")
    (cache.folder / "fit" / "letter.safetensors").write_text("of the user's own")
    unfinished = cache.folder / "fit" / f".{'0' * 32}.safetensors.writing-{2**31}"
    unfinished.write_text("")
    assert {entry.kind for entry in cache.clear("fit")} == {"fit"}
    assert [entry.kind for entry in cache.entries()] == ["partition"]
    assert not unfinished.exists()
    cache.clear()
    assert [path.name for path in cache.folder.rglob("*.*")] == ["letter.safetensors"]


def use(folder: Path) -> None:
    """Save and load the same entries over and over, while others do the same and remove them."""
    cache = Cache(folder=folder, min_seconds=0.0, limit_bytes=4_000)
    for seed in range(40):
        key = KEY | {"seed": seed % 5}
        arrays = {"seed": np.full(50, seed % 5)}
        assert save(cache, key, "fit", arrays) is None
        found = cache.load("fit", key)
        assert found is None or (found["seed"] == seed % 5).all()


def test_threads_and_processes_share_a_cache(tmp_path: Path) -> None:
    processes = [forked(lambda: use(tmp_path)) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(use, [tmp_path] * 2))
    assert [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes] == [0, 0]


def test_the_users_cache_is_where_and_as_large_as_variables_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Cache.of_user().folder == Path(os.environ["XDG_CACHE_HOME"]) / "strobe" / "results"
    monkeypatch.setenv("STROBE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("STROBE_CACHE_LIMIT", "0")
    assert Cache.of_user().folder == tmp_path
    assert Cache.of_user().is_off


def test_sizes_are_read() -> None:
    assert [parse_size(text) for text in ("0", "500M", "1.5 GiB", "2g", "10KB")] == [
        0,
        500 << 20,
        3 << 29,
        2 << 30,
        10240,
    ]
    with pytest.raises(OptionError, match="such as 500M"):
        parse_size("plenty")


@given(st.recursive(st.floats() | st.integers() | st.text() | st.none() | st.booleans(), st.lists))
def test_json_is_exact(value: Any) -> None:
    assert repr(decode_json(encode_json(value))) == repr(value)
