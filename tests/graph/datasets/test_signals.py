from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from strobe.errors import OptionError
from strobe.graph.datasets import load
from strobe.graph.ingest import Every


def test_features_are_now_and_labels_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "chickenpox").mkdir()
    data = {"edges": [[0, 1], [1, 0]], "node_ids": {"ZALA": 0, "BACS": 1}, "FX": [[1, 10], [2, 20], [3, 30]]}
    (tmp_path / "chickenpox" / "chickenpox.json").write_text(json.dumps(data))
    graph = load("chickenpox", data_dir=tmp_path)
    assert list(graph.names or []) == ["BACS", "ZALA"]
    assert [np.asarray(snapshot.x).tolist() for snapshot in graph] == [[[10], [1]], [[20], [2]], [[30], [3]]]
    assert [np.asarray(snapshot.y).tolist() for snapshot in graph[:2]] == [[20, 2], [30, 3]]
    assert np.isnan(np.asarray(graph[2].y)).all()
    with pytest.raises(OptionError, match=r"clock cannot be chosen for chickenpox .it comes in snapshots of its own"):
        load("chickenpox", data_dir=tmp_path, clock=Every(2))


def test_edges_that_change_have_weights_per_step(tmp_path: Path) -> None:
    (tmp_path / "england_covid").mkdir()
    moves = {
        "edge_index": {"1": [[1, 0], [1, 1]], "0": [[0, 1]]},
        "edge_weight": {"1": [2.0, 3.0], "0": [7.5]},
    }
    data = {"edge_mapping": moves, "time_periods": 2, "y": [[0.5, 1.5], [2.5, 3.5]]}
    path = tmp_path / "england_covid" / "england_covid.json.gz"
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    graph = load("england_covid", data_dir=tmp_path, out=tmp_path / "graph")
    assert [np.asarray(snapshot.weight).tolist() for snapshot in graph] == [[7.5], [2.0, 3.0]]
    assert [snapshot.num_edges for snapshot in graph] == [1, 2]
    assert graph.info["rows"] == 3


def test_a_matrix_of_neighbours_becomes_weighted_edges(tmp_path: Path) -> None:
    (tmp_path / "metr_la_week").mkdir()
    (tmp_path / "metr_la_week" / "los_speed.csv").write_text("717,42\n60.5,50\n61,51\n")
    (tmp_path / "metr_la_week" / "los_adj.csv").write_text("1,0.25\n0,1\n")
    graph = load("metr_la_week", data_dir=tmp_path)
    assert list(graph.names or []) == [42, 717]
    src, dst, weight = graph[1].edges()
    edges = zip(src.tolist(), dst.tolist(), np.asarray(weight).tolist(), strict=True)
    assert sorted(edges) == [(0, 0, 1), (1, 0, 0.25), (1, 1, 1)]
    assert np.asarray(graph[0].x).tolist() == [[50], [60.5]]
