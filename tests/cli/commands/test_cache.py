from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from strobe.errors import UnknownNameError
from strobe.io.cache import Cache
from tests.support.cli_runner import run_command


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """The user's cache with three entries."""
    monkeypatch.setenv("STROBE_CACHE_DIR", str(tmp_path / "results"))
    monkeypatch.setenv("STROBE_CACHE_LIMIT", "1M")
    made = Cache.of_user()
    for kind, name in (("fit", "friends"), ("fit", "town"), ("baselines", "friends")):
        made.save(kind, [name], {"values": np.zeros(100)}, subject=name, seconds=1.0)
    return made


def run(*arguments: object) -> str:
    return run_command("cache", *arguments).stdout


def test_kinds_graphs_and_sizes_are_shown_with_folder_and_limit(cache: Cache) -> None:
    shown = run()
    for words in ("fit", "baselines", "friends, town", "last used", "3 entries", "of 1.0 MiB", cache.folder.name):
        assert words in shown
    assert "baselines" not in run("fit")


def test_json_has_what_the_table_has(cache: Cache) -> None:
    found = json.loads(run("--json"))
    assert (found["folder"], found["limit"]) == (str(cache.folder), 1 << 20)
    assert {row["kind"]: (row["entries"], row["of"]) for row in found["kinds"]} == {
        "fit": (2, ["friends", "town"]),
        "baselines": (1, ["friends"]),
    }
    assert found["bytes"] == sum(entry.size for entry in cache.entries())


def test_a_kind_or_all_entries_are_cleared(cache: Cache) -> None:
    assert "removed 2 entries" in run("--clear", "fit")
    assert [entry.kind for entry in cache.entries()] == ["baselines"]
    assert json.loads(run("--clear", "--json"))["removed"] == 1
    assert "0 entries" in run()
    with pytest.raises(UnknownNameError, match="did you mean 'partition'"):
        run("--clear", "partitions")


def test_training_fills_the_cache_unless_it_is_off(
    friends: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STROBE_CACHE_DIR", str(tmp_path / "results"))
    monkeypatch.setattr("strobe.api.Cache.of_user", lambda: Cache(folder=tmp_path / "results", min_seconds=0.0))
    options = ("friends", "--epochs", 1, "--hidden", 4, "--task", "regression", "--overwrite", "-q")
    assert "from the cache" not in run_command("train", *options, "--no-cache").stdout
    assert not (tmp_path / "results").exists()
    assert "from the cache" not in run_command("train", *options).stdout
    assert "(baselines, fit from the cache)" in run_command("train", *options).stdout
    assert run_command("train", *options, "--no-cache").stdout.count("from the cache") == 0
    assert "friends" in run()
