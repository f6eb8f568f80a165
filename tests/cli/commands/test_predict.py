from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from pyarrow import csv, parquet

import strobe
from strobe.errors import BadRowsError, OptionError, UnknownNameError
from strobe.graph import Edges, GraphBuilder, NodeNames
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


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a link run on a graph with names."""
    folder = tmp_path_factory.mktemp("links")
    rng = np.random.default_rng(0)
    builder = GraphBuilder(num_nodes=13)
    for t in range(10):
        builder.add(Edges(*rng.integers(0, 12, (2, 20))), time=f"2024-{t + 1:02}")
    builder.finish(names=NodeNames.from_names([f"p{k:02}" for k in range(13)])).save(folder / "people")
    strobe.train(folder / "people", "tgcn", "link-prediction", out=folder / "run", epochs=1)
    return folder / "run"


def test_best_links_of_every_node_are_written(links: Path, tmp_path: Path) -> None:
    shown = run(links, "--top", 3, "-o", tmp_path / "links.csv")
    table = csv.read_csv(tmp_path / "links.csv")
    assert "39 predictions" in shown
    assert table.num_rows == 13 * 3
    assert table["rank"].to_pylist() == [1, 2, 3] * 13
    columns = ["source", "source_name", "destination", "destination_name", "t", "read_time", "time", "rank"]
    assert table.column_names == [*columns, "score", "probability"]
    assert str(table["time"][0]) == "2024-11"


def test_best_links_of_some_nodes_without_past_edges(links: Path, tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("node\np03\n")
    target = tmp_path / "links.parquet"
    options = ("--nodes", tmp_path / "nodes.csv", "--node", "p12", "--exclude", "ever")
    found = json.loads(run(links, "--top", 50, *options, "--json", "-o", target))
    table = parquet.read_table(target)
    assert found["rows"] == table.num_rows
    assert set(table["source_name"].to_pylist()) == {"p03", "p12"}
    never = table.filter(pc.equal(table["source_name"], "p12"))  # no snapshot has this node
    assert never.num_rows == 12
    assert table.num_rows < 24


def test_listed_pairs_are_scored_in_their_order(links: Path, tmp_path: Path) -> None:
    run(links, "--top", 50, "-o", tmp_path / "all.parquet")
    rows = parquet.read_table(tmp_path / "all.parquet").to_pylist()
    known = {(row["source_name"], row["destination_name"]): row["probability"] for row in rows}
    listed = [("p05", "p01"), ("p12", "p00"), ("p00", "p12")]
    (tmp_path / "pairs.csv").write_text("".join(f"{a},{b}\n" for a, b in listed))
    run(links, "--pairs", tmp_path / "pairs.csv", "-o", tmp_path / "scores.parquet")
    found = parquet.read_table(tmp_path / "scores.parquet").to_pylist()
    assert [(row["source_name"], row["destination_name"]) for row in found] == listed
    assert [row["probability"] for row in found] == pytest.approx([known[pair] for pair in listed], rel=1e-3)


def test_bad_pairs_are_named_or_skipped(links: Path, tmp_path: Path) -> None:
    pairs, target = tmp_path / "pairs.csv", tmp_path / "scores.parquet"
    pairs.write_text("p01,p02\np01,p99\n")
    with pytest.raises(BadRowsError, match=r"pairs\.csv, line 2: column 'destination': 'p99'"):
        run(links, "--pairs", pairs, "-o", target)
    assert not target.exists()
    assert "1 prediction" in run(links, "--pairs", pairs, "--skip-bad-rows", "-o", target)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--top", 3, "--pairs", "pairs.csv"), "one of them"),
        (("--node", "p01"), "add --top"),
        (("--exclude", "ever"), "add --top"),
        (("--top", 3, "--part", "test"), "--part"),
        (("--pairs", "pairs.csv", "--embeddings"), "--embeddings"),
        (("--top", 0), "at least 1"),
        (("--top", 3, "--exclude", "old"), "exclude"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    links: Path, tmp_path: Path, arguments: tuple[object, ...], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        run(links, *arguments, "-o", tmp_path / "links.parquet")
    assert not list(tmp_path.iterdir())


def test_run_of_another_task_predicts_no_links(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="link-ranking"):
        run(trained, "--top", 3, "-o", tmp_path / "links.parquet")


def test_unknown_node_is_refused_with_the_nearest_name(links: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="p1"):
        run(links, "--top", 3, "--node", "p1x", "-o", tmp_path / "links.parquet")
