from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyarrow import csv, parquet

import strobe
from strobe.errors import OptionError
from strobe.graph.synthetic import Social
from tests.support.cli_runner import run_command


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    Social(nodes=40, snapshots=10, edges=80, communities=4).write().save(folder / "friends")
    strobe.train(folder / "friends", "tgcn", out=folder / "run", epochs=1)
    return folder / "run"


def run(*arguments: object) -> str:
    return run_command("predict", *arguments).stdout


def test_next_snapshot_is_written_and_first_rows_are_shown(trained: Path, tmp_path: Path) -> None:
    shown = run(trained, "-o", tmp_path / "next.parquet")
    table = parquet.read_table(tmp_path / "next.parquet")
    assert set(table["t"].to_pylist()) == {9}
    assert f"{table.num_rows} predictions" in shown
    assert f"{table['predicted_log_in_degree'][0].as_py():.4f}" in shown


def test_a_part_with_embeddings_as_json(trained: Path, tmp_path: Path) -> None:
    found = json.loads(run(trained, "--part", "test", "--embeddings", "--json", "-o", tmp_path / "test.parquet"))
    table = parquet.read_table(tmp_path / "test.parquet")
    assert found["rows"] == table.num_rows
    assert {"actual_log_in_degree", "embedding"} <= set(table.column_names)


def test_csv_is_written(trained: Path, tmp_path: Path) -> None:
    shown = run(trained, "-o", tmp_path / "next.csv")
    table = csv.read_csv(tmp_path / "next.csv")
    assert f"{table.num_rows} predictions" in shown
    assert f"{table['predicted_log_in_degree'][0].as_py():.4f}" in shown


def test_unknown_extension_is_refused_before_the_run_is_opened(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="end it in"):
        run(tmp_path / "no-run", "-o", tmp_path / "next.xls")


def test_file_is_replaced_only_with_overwrite(trained: Path, tmp_path: Path) -> None:
    target = tmp_path / "next.parquet"
    target.write_text("mine")
    with pytest.raises(OptionError, match="--overwrite"):
        run(trained, "-o", target)
    assert target.read_text() == "mine"
    run(trained, "-o", target, "--overwrite")
    assert parquet.read_table(target).num_rows
    with pytest.raises(OptionError, match="directory that exists"):
        run(trained, "-o", tmp_path / "missing" / "p.parquet")


def test_predicts_on_a_graph_that_has_grown(trained: Path, tmp_path: Path) -> None:
    Social(nodes=50, snapshots=12, edges=90, communities=5).write().save(tmp_path / "today")
    run(trained, "--graph", tmp_path / "today", "-o", tmp_path / "next.parquet")
    assert set(parquet.read_table(tmp_path / "next.parquet")["t"].to_pylist()) == {11}
