from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import strobe
from strobe.engine import Run
from strobe.engine.evaluation.predict import write_predictions
from strobe.errors import OptionError, UnknownNameError
from strobe.graph import Degrees, GraphBuilder, NodeNames
from strobe.graph.build import Edges
from tests.support.runs import small_graph


@pytest.fixture(scope="module")
def run() -> Run:
    return strobe.train(small_graph(), "tgcn", "regression", epochs=2, window=3)


def test_predictions_of_the_test_part_have_its_metric(run: Run) -> None:
    table = run.predict("test")
    wanted = ["log_in_degree", "log_out_degree"]
    columns = [f"{kind}_{name}" for kind in ("predicted", "actual") for name in wanted]
    assert table.column_names == ["node", "t", "read_time", "time", *columns]
    off = [np.asarray(table[f"predicted_{name}"]) - np.asarray(table[f"actual_{name}"]) for name in wanted]
    assert float(np.mean(np.square(off))) == pytest.approx(run.test["mse"], rel=1e-12)
    assert set(table["t"].to_pylist()) == set(run.problem.split.test)


def test_the_future_of_the_newest_snapshot_is_predicted_for_every_node(run: Run) -> None:
    table = run.predict()
    newest = run.problem.graph[9]
    assert table["node"].to_pylist() == newest.nodes.tolist()
    assert set(table["t"].to_pylist()) == {9}
    assert table.column_names == [
        "node",
        "t",
        "read_time",
        "time",
        "predicted_log_in_degree",
        "predicted_log_out_degree",
    ]
    assert np.isfinite(np.asarray(table["predicted_log_in_degree"])).all()


def test_an_untrained_difference_is_the_last_value(run: Run) -> None:
    still = strobe.train(small_graph(), "tgcn", "regression", epochs=1)
    for weight in still.head.parameters():
        weight.data.zero_()
    newest = still.problem.graph[9]
    known = Degrees(log=True).rows(newest)
    np.testing.assert_allclose(np.asarray(still.predict()["predicted_log_in_degree"]), known[:, 0], rtol=1e-6)


@pytest.mark.parametrize(
    ("task", "columns"),
    [
        ("classification", ["node", "t", "read_time", "time", "predicted", "probability"]),
        ("link-prediction", ["source", "destination", "t", "read_time", "time", "score", "probability"]),
    ],
)
def test_other_tasks_predict_the_future_too(task: str, columns: list[str]) -> None:
    trained = strobe.train(small_graph(), "tgcn", task, epochs=1)
    assert trained.predict().column_names == columns
    assert len(trained.predict()) > 10
    assert "actual" in trained.predict("test").column_names


def test_files_hold_the_same_as_tables_snapshot_by_snapshot(run: Run, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    told = lambda done, total: seen.append((done, total))  # noqa: E731
    written = write_predictions(run, tmp_path / "test.parquet", "test", embeddings=True, on_progress=told)
    table = run.predict("test", embeddings=True)
    file = parquet.ParquetFile(tmp_path / "test.parquet")
    assert file.read().equals(table)
    assert written.rows == table.num_rows
    assert written.first.equals(table.slice(0, written.first.num_rows))
    assert file.num_row_groups == len(run.problem.split.test)
    assert table.schema.field("embedding").type == pa.list_(pa.float32(), 32)
    assert seen[-1] == (9, 9)


def test_a_csv_file_holds_the_same_with_a_column_for_each_number_of_an_embedding(run: Run, tmp_path: Path) -> None:
    rows = write_predictions(run, tmp_path / "test.csv", "test", embeddings=True).rows
    wanted, found = run.predict("test", embeddings=True), csv.read_csv(tmp_path / "test.csv")
    flat = [name for name in wanted.column_names if name != "embedding"]
    assert found.column_names == [*flat, *(f"embedding_{k}" for k in range(32))]
    assert found.num_rows == rows == wanted.num_rows
    for name in flat:
        assert found[name].cast(wanted[name].type).equals(wanted[name])
    embeddings = np.stack([found[f"embedding_{k}"].to_numpy() for k in range(32)], axis=1)
    assert (embeddings.astype(np.float32) == np.array(wanted["embedding"].to_pylist(), np.float32)).all()


def test_a_file_of_unknown_format_is_refused_and_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("mine")
    with pytest.raises(OptionError, match=r"p\.txt.* end it in \.parquet or \.csv"):
        write_predictions(run, tmp_path / "p.txt")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_pairs_have_an_embedding_for_each_end() -> None:
    trained = strobe.train(small_graph(), "tgcn", "link-prediction", epochs=1, model_options={"hidden": 4})
    table = trained.predict("test", embeddings=True)
    assert table.column_names[-2:] == ["source_embedding", "destination_embedding"]


@pytest.mark.parametrize("names", [["anna", "bob", "ö"], [7, 11, 12]])
def test_names_and_times_come_along(names: list[str] | list[int]) -> None:
    builder = GraphBuilder(num_nodes=3)
    for t in range(5):
        builder.add(Edges([0, 1], [1, 2]), nodes=[0, 1, 2] if t < 4 else [1, 2, 0][:3], time=f"2024-0{t + 1}")
    graph = builder.finish(names=NodeNames.from_names(names))
    table = strobe.train(graph, "tgcn", "regression", epochs=1).predict()
    assert table["name"].to_pylist() == names
    assert table["read_time"].to_pylist() == ["2024-05"] * 3
    assert table["time"].to_pylist() == ["2024-06"] * 3


def test_a_part_that_is_none_is_refused_and_no_file_is_left(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'next'"):
        write_predictions(run, tmp_path / "p.parquet", "nxt")
    assert not list(tmp_path.iterdir())
