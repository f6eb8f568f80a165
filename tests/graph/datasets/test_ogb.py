from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from strobe.errors import InputError, OptionError
from strobe.graph import DynamicGraph, Static
from strobe.graph.datasets import load
from strobe.graph.ingest import Every, Into

EDGES = [(0, 1), (1, 2), (3, 0), (2, 0)]
YEARS = [1999, 2001, 2001, 2003, 2003]
FEATURES = np.arange(10, dtype=np.float32).reshape(5, 2) / 4
LABELS = [0, 2, 1, 0, 2]


def packed(rows: list[object]) -> bytes:
    return gzip.compress("".join(f"{row}\n" for row in rows).encode())


def archive(root: Path, name: str, folder: str, *, years: bool) -> Path:
    """An OGB set as published: FOLDER.zip with FOLDER/raw/*.csv.gz, no headers."""
    members: dict[str, list[object]] = {
        "edge": [f"{src},{dst}" for src, dst in EDGES],
        "node-feat": [",".join(map(str, row)) for row in FEATURES.tolist()],
        "node-label": list(LABELS),
        "num-node-list": [5],
        "num-edge-list": [4],
    }
    if years:
        members["node_year"] = list(YEARS)
    (root / name).mkdir()
    with zipfile.ZipFile(root / name / f"{folder}.zip", "w") as made:
        for member, rows in members.items():
            made.writestr(f"{folder}/raw/{member}.csv.gz", packed(rows))
        made.writestr(f"{folder}/split/time/train.csv.gz", packed([0, 1]))
    return root


def pairs(graph: DynamicGraph) -> list[list[tuple[int, int]]]:
    return [sorted(zip(*(ends.tolist() for ends in snapshot.edges()[:2]), strict=True)) for snapshot in graph]


def check_papers(graph: DynamicGraph) -> None:
    assert pairs(graph) == [[(0, 1), (1, 2), (2, 0)], [(3, 0)]]
    assert [snapshot.nodes.tolist() for snapshot in graph] == [[0, 1, 2], [0, 1, 2, 3]]
    assert isinstance(graph.features, Static)
    np.testing.assert_array_equal(graph.features.values, FEATURES)


def test_arxiv_is_dated_by_the_younger_paper(tmp_path: Path) -> None:
    graph = load("ogbn-arxiv", data_dir=archive(tmp_path, "ogbn-arxiv", "arxiv", years=True))
    check_papers(graph)
    assert graph.times == (2001, 2003)
    assert graph.directed
    assert graph.num_nodes == 5
    assert isinstance(graph.labels, Static)
    assert graph.labels.values.tolist() == LABELS


def test_arxiv_can_be_cut_otherwise_and_be_written(tmp_path: Path) -> None:
    root = archive(tmp_path, "ogbn-arxiv", "arxiv", years=True)
    graph = load("ogbn-arxiv", data_dir=root, out=tmp_path / "graph", clock=Every(10), life=2)
    assert graph.times == (2000,)
    assert graph.info["dataset"]["name"] == "ogbn-arxiv"


def test_an_unpacked_folder_is_read_too(tmp_path: Path) -> None:
    root = archive(tmp_path, "ogbn-arxiv", "arxiv", years=True)
    with zipfile.ZipFile(root / "ogbn-arxiv" / "arxiv.zip") as packed_set:
        packed_set.extractall(root)
    (root / "ogbn-arxiv" / "arxiv.zip").unlink()
    (root / "ogbn-arxiv").rmdir()
    (root / "arxiv").rename(root / "ogbn_arxiv")
    check_papers(load("ogbn-arxiv", data_dir=root))


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    root = archive(tmp_path, "ogbn-arxiv", "arxiv", years=True)
    (root / "ogbn-arxiv" / "raw").mkdir()
    (root / "ogbn-arxiv" / "raw" / "edge.csv").write_text("0,1\n2\n")
    with pytest.raises(InputError, match=r"edge\.csv cannot be read"):
        load("ogbn-arxiv", data_dir=root)


def test_products_are_static_and_undirected(tmp_path: Path) -> None:
    graph = load("ogbn-products", data_dir=archive(tmp_path, "ogbn-products", "products", years=False))
    assert not graph.directed
    assert len(graph) == 1
    assert graph.num_edges == 4


@pytest.mark.parametrize(("name", "constant"), [("arxiv-t", True), ("products-t", False)])
def test_static_sets_grow(name: str, constant: bool, tmp_path: Path) -> None:
    folder = name.removesuffix("-t")
    root = archive(tmp_path, f"ogbn-{folder}", folder, years=name == "arxiv-t")
    graph = load(name, data_dir=root)
    assert len(graph) == 30
    assert graph[-1].num_edges == 4
    assert graph[-1].num_nodes == 5
    assert all(snapshot.num_nodes == 5 for snapshot in graph) == constant
    assert graph.info["shares"][-1] == 1
    assert len(load(name, data_dir=root, clock=Into(3))) == 3
    with pytest.raises(OptionError, match="choose its number of snapshots only"):
        load(name, data_dir=root, clock=Every(2))


def test_papers100m_is_read_from_arrays_on_disk(tmp_path: Path) -> None:
    raw = tmp_path / "ogbn-papers100M" / "raw"
    raw.mkdir(parents=True)
    np.savez(
        raw / "data.npz",
        edge_index=np.array(EDGES).T,
        node_feat=FEATURES,
        node_year=np.array(YEARS)[:, None],
        num_nodes_list=np.array([5]),
        num_edges_list=np.array([4]),
    )
    np.savez(raw / "node-label.npz", node_label=np.array([[0], [np.nan], [1], [np.nan], [2]], np.float32))
    graph = load("ogbn-papers100M", data_dir=tmp_path, out=tmp_path / "graph")
    check_papers(DynamicGraph(graph[::2].storage, graph.features, graph.labels, window=graph[::2].window))
    assert graph.times == (2001, 2002, 2003)
    assert isinstance(graph.labels, Static)
    assert graph.labels.values.tolist() == [0, -1, 1, -1, 2]


@pytest.mark.parametrize(("damage", "reason"), [(0, "has no node_year"), (0xFF, "is damaged")])
def test_papers100m_without_an_array_or_with_a_damaged_one_is_refused(tmp_path: Path, damage: int, reason: str) -> None:
    raw = tmp_path / "ogbn-papers100M" / "raw"
    raw.mkdir(parents=True)
    np.savez(raw / "node-label.npz", node_label=np.zeros((5, 1)))
    np.savez_compressed(raw / "data.npz", edge_index=np.arange(10_000).reshape(2, -1))
    data = bytearray((raw / "data.npz").read_bytes())
    data[100] ^= damage  # where its Huffman codes stand: zlib, not the checksum, finds it
    (raw / "data.npz").write_bytes(data)
    with pytest.raises(InputError, match=rf"data\.npz {reason}"):
        load("ogbn-papers100M", data_dir=tmp_path)
    assert (raw / "edge_index.npy").exists() == (not damage)


def test_reddit_is_read_as_dgl_publishes_it(tmp_path: Path) -> None:
    folder = tmp_path / "reddit"
    folder.mkdir()
    both = np.array([*EDGES, *((dst, src) for src, dst in EDGES)]).T
    sp.save_npz(folder / "reddit_graph.npz", sp.coo_matrix((np.ones(8), both), shape=(5, 5)))
    np.savez(
        folder / "reddit_data.npz",
        feature=FEATURES.astype(np.float64),
        label=np.array(LABELS),
        node_types=np.array([1, 1, 2, 3, 3]),
        node_ids=np.arange(5),
    )
    graph = load("reddit", data_dir=tmp_path)
    assert not graph.directed
    assert graph.num_edges == 4
    assert graph[0].x is not None
    assert graph[0].x.dtype == np.float32
    assert graph.info["split_sizes"] == {"train": 2, "val": 1, "test": 2}
    assert len(load("reddit-t", data_dir=tmp_path, seed=1)) == 30
