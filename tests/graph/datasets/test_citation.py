from __future__ import annotations

from pathlib import Path

import numpy as np

from strobe.graph import Static
from strobe.graph.datasets import load


def test_citations_without_a_year_are_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "cora_temporal").mkdir()
    (tmp_path / "cora_temporal" / "citations_with_dates.csv").write_text(
        "referring_id,cited_id,referring_year,cited_year\n9,12,1995,1990\n7,12,,1990\n12,7,1999,1998\n12,8,1999,\n"
    )
    (tmp_path / "cora_temporal" / "classifications.csv").write_text(
        "id,filename,full_classification,top_level_class\n12,a,/x/,Databases\n9,b,/y/,AI\n8,c,/z/,Nowhere\n"
    )
    graph = load("cora_temporal", data_dir=tmp_path)
    assert graph.times == (1995, 1999)
    assert graph.info["rows_without_year"] == 2
    assert graph.info["classes"] == ["AI", "Databases"]
    assert list(graph.names or []) == [7, 9, 12]
    assert isinstance(graph.labels, Static)
    assert graph.labels.values.tolist() == [-1, 0, 1]
    assert [snapshot.num_nodes for snapshot in graph] == [2, 3]


def test_dated_pubmed_has_features_and_labels(tmp_path: Path) -> None:
    (tmp_path / "pubmed_temporal").mkdir()
    np.savez(
        tmp_path / "pubmed_temporal" / "pubmed_temporal.npz",
        edges=np.array([[0, 2], [1, 2]], np.int32),
        time=np.array([7, 3], np.int16),
        node_time=np.array([7, 0, 3], np.int16),
        labels=np.array([1, 0, 2], np.int16),
        num_nodes=3,
        x_data=np.array([0.5], np.float32),
        x_indices=np.array([1]),
        x_indptr=np.array([0, 0, 1, 1]),
        x_shape=np.array([3, 2]),
    )
    graph = load("pubmed_temporal", data_dir=tmp_path)
    assert graph.times == (3, 7)
    assert graph[0].nodes.tolist() == [1, 2]
    assert np.asarray(graph[0].x).tolist() == [[0, 0.5], [0, 0]]
    assert np.asarray(graph[1].y).tolist() == [1, 0, 2]
    assert [snapshot.num_edges for snapshot in load("pubmed_temporal", data_dir=tmp_path, life=9)] == [1, 2]


def test_coauthors_are_undirected_and_all_labelled(tmp_path: Path) -> None:
    (tmp_path / "dblp_coauthor").mkdir()
    (tmp_path / "dblp_coauthor" / "dblp.txt").write_text("5 6 0.0\n6 5 0.0\n6 7 0.038462\n")
    (tmp_path / "dblp_coauthor" / "node2label.txt").write_text("5 1\n6 0\n7 1\n")
    graph = load("dblp_coauthor", data_dir=tmp_path)
    assert graph.times == ("0.0", "0.038462")
    assert [snapshot.num_edges for snapshot in graph] == [1, 1]
    assert isinstance(graph.labels, Static)
    assert graph.labels.values.tolist() == [1, 0, 1]
