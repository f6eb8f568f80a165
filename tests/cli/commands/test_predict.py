from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyarrow import csv, parquet

from strobe.errors import OptionError
from strobe.graph.synthetic import Social
from tests.support.cli_runner import run_command


def run(*arguments: object) -> str:
    return run_command("predict", *arguments).stdout


@pytest.mark.parametrize(("name", "read"), [("next.parquet", parquet.read_table), ("next.csv", csv.read_csv)])
def test_next_snapshot_is_written_and_first_rows_are_shown(name: str, read: Any, trained: Path, tmp_path: Path) -> None:
    shown = run(trained, "-o", tmp_path / name)
    table = read(tmp_path / name)
    assert set(table["t"].to_pylist()) == {9}
    assert f"{table.num_rows} predictions" in shown
    assert f"{table['predicted_log_in_degree'][0].as_py():.4f}" in shown


def test_a_part_with_embeddings_as_json(trained: Path, tmp_path: Path) -> None:
    found = json.loads(run(trained, "--part", "test", "--embeddings", "--json", "-o", tmp_path / "test.parquet"))
    table = parquet.read_table(tmp_path / "test.parquet")
    assert found["rows"] == table.num_rows
    assert {"actual_log_in_degree", "embedding"} <= set(table.column_names)


def test_file_is_replaced_only_with_overwrite(trained: Path, tmp_path: Path) -> None:
    target = tmp_path / "next.parquet"
    target.write_text("mine")
    with pytest.raises(OptionError, match="--overwrite"):
        run(trained, "-o", target)
    assert target.read_text() == "mine"
    run(trained, "-o", target, "--overwrite")
    assert parquet.read_table(target).num_rows


def test_predicts_on_a_graph_that_has_grown(trained: Path, tmp_path: Path) -> None:
    Social(nodes=50, snapshots=12, edges=90, communities=5).write().save(tmp_path / "today")
    run(trained, "--graph", tmp_path / "today", "-o", tmp_path / "next.parquet")
    assert set(parquet.read_table(tmp_path / "next.parquet")["t"].to_pylist()) == {11}
