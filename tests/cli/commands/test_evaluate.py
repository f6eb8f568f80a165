from __future__ import annotations

import json
from pathlib import Path

import pytest

from strobe.errors import UnknownNameError
from strobe.graph.synthetic import Social
from tests.support.cli_runner import run_command


def run(*arguments: object) -> str:
    return run_command("evaluate", *arguments).stdout


def test_scores_are_shown_next_to_baselines(trained: Path) -> None:
    shown = run(trained)
    for words in ("tgcn on friends, snapshots 7 to 8", "mse", "mae", "last value", "than mean"):
        assert words in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_json_scores_equal_those_of_the_run(trained: Path) -> None:
    result = json.loads((trained / "result.json").read_text())
    for part in ("test", "validation"):
        found = json.loads(run(trained, "--json", "--part", part))
        assert found["metrics"] == result[part]
        assert found["baselines"] == result["baselines"][part]


def test_another_graph_is_scored(trained: Path, tmp_path: Path) -> None:
    Social(nodes=40, snapshots=12, edges=90, communities=4, seed=3).write().save(tmp_path / "others")
    found = json.loads(run(trained, "--graph", tmp_path / "others", "--part", "all", "--json"))
    assert found["graph"] == "others"
    assert found["snapshots"] == [0, 11]


def test_unknown_part_suggests_the_nearest(trained: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'validation'"):
        run(trained, "--part", "valid")
