"""Loaders of tables, on files in the published formats."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pytest

from strobe.errors import InputError
from strobe.graph import DynamicGraph
from strobe.graph.datasets import load
from strobe.graph.ingest import Calendar, EventsEach, Every, Into


def published(root: Path, name: str, text: str) -> Path:
    """A set of the Network Repository as it is downloaded: a .zip with the edges and a page."""
    (root / name).mkdir()
    with zipfile.ZipFile(root / name / f"{name}.zip", "w") as archive:
        archive.writestr(f"{name}.edges", text)
        archive.writestr("readme.html", "<html></html>")
    return root


def weights(graph: DynamicGraph) -> list[float]:
    """Those of all edges, ascending."""
    return sorted(float(w) for snapshot in graph if snapshot.weight is not None for w in snapshot.weight)


def test_four_columns_are_source_destination_weight_time(tmp_path: Path) -> None:
    text = "% asym posweighted\n% 3 4 4\n1 2 1 1100000000\n2 9 1 1100000000\n1 2 1 1200000000\n9 1 1 1200000001\n"
    graph = load("soc-flickr-growth", data_dir=published(tmp_path, "soc-flickr-growth", text), clock=Into(2))
    assert graph.directed
    assert list(graph.names or []) == [1, 2, 9]
    assert [snapshot.num_edges for snapshot in graph] == [2, 2]
    assert graph.info["rows"] == 4
    assert graph.info["distinct_pairs"] == 3
    assert graph.info["dataset"]["source"] == "https://networkrepository.com/soc-flickr-growth.php"


def test_a_symmetric_file_gives_an_undirected_graph(tmp_path: Path) -> None:
    text = "% sym unweighted\n1 2 1 1100000000\n2 1 1 1100000005\n"
    root = published(tmp_path, "soc-youtube-growth", text)
    assert len(load("soc-youtube-growth", data_dir=root)) == 80  # the published number of snapshots
    graph = load("soc-youtube-growth", data_dir=root, clock=Into(1))
    assert not graph.directed
    assert graph.num_edges == 1
    assert np.asarray(graph[0].weight).tolist() == [2, 2]


def test_ratings_come_with_commas(tmp_path: Path) -> None:
    text = "1,2,5.0,1100000000\n1,3,1.5,1200000000\n"
    graph = load("rec-amazon-ratings", data_dir=published(tmp_path, "rec-amazon-ratings", text), clock=Every(10**9))
    assert weights(graph) == [1.5, 5.0]


def test_three_columns_are_source_destination_time(tmp_path: Path) -> None:
    text = "% asym\n7 8 1100000000\n8 7 1100000001\n7 8 1100000002\n"
    graph = load("soc-bitcoin", data_dir=published(tmp_path, "soc-bitcoin", text), clock=EventsEach(3))
    assert graph.num_edges == 2
    assert weights(graph) == [1, 2]


def test_other_widths_are_refused(tmp_path: Path) -> None:
    root = published(tmp_path, "soc-bitcoin", "1 2\n3 4\n")
    with pytest.raises(InputError, match="has 2 columns: edges with a time have 3, or 4 with a weight"):
        load("soc-bitcoin", data_dir=root)


@pytest.mark.parametrize("packed", [True, False])
def test_snap_streams_are_read_packed_or_not(tmp_path: Path, packed: bool) -> None:
    rows = b"1 2 1100000000\n3 1 1103000000\n1 2 1106000000\n"
    (tmp_path / "sx_askubuntu").mkdir()
    name = "sx-askubuntu.txt"
    path = tmp_path / "sx_askubuntu" / (name + ".gz" if packed else name)
    path.write_bytes(gzip.compress(rows) if packed else rows)
    graph = load("sx-askubuntu", data_dir=tmp_path)
    assert graph.times == ("2004-11", "2004-12", "2005-01")
    assert graph.info["first_time"] == "2004-11-09T11:33:20"
    wider = load("sx-askubuntu", data_dir=tmp_path, clock=Calendar("year"), life=2, presence="always")
    assert [snapshot.num_edges for snapshot in wider] == [2, 2]
    assert wider[1].num_nodes == 3


def test_ratings_of_trust_keep_their_sign(tmp_path: Path) -> None:
    (tmp_path / "bitcoin_otc").mkdir()
    rows = "#source,#target,#rating,#timestamp\n6,2,-4,1289241911.72836\n2,6,10,1289241941.5\n"
    (tmp_path / "bitcoin_otc" / "soc-sign-bitcoinotc.csv").write_text(rows)
    graph = load("bitcoin_otc", data_dir=tmp_path)
    assert weights(graph) == [-4, 10]


def test_daily_routers_are_undirected_and_can_be_cut_by_month(tmp_path: Path) -> None:
    (tmp_path / "as733").mkdir()
    np.savez(
        tmp_path / "as733" / "as733.npz",
        src=np.array([1, 1, 70, 1], np.int32),
        dst=np.array([70, 1, 900, 70], np.int32),
        ptr=np.array([0, 2, 3, 4]),
        date=np.array([19971130, 19971201, 20000102], np.int32),
    )
    graph = load("as733", data_dir=tmp_path)
    assert graph.times == (19971130, 19971201, 20000102)
    assert not graph.directed
    assert not graph.weighted
    assert [snapshot.num_edges for snapshot in graph] == [2, 1, 1]
    monthly = load("as733", data_dir=tmp_path, clock=Calendar("month"))
    assert (monthly.times[0], monthly.times[1], monthly.times[-1]) == ("1997-11", "1997-12", "2000-01")
    assert len(monthly) == 27


def test_seen_nodes_stay_and_repeated_edges_are_counted(tmp_path: Path) -> None:
    (tmp_path / "uci_dysat").mkdir()
    rows = "snapshot,src,dst,unix_time\n0,0,1,1082477525\n0,1,0,1082477526\n2,2,2,1092477525\n"
    (tmp_path / "uci_dysat" / "events.csv.gz").write_bytes(gzip.compress(rows.encode()))
    graph = load("uci_dysat", data_dir=tmp_path)
    assert graph.times == (0, 2)
    assert [snapshot.num_nodes for snapshot in graph] == [2, 3]
    assert [np.asarray(snapshot.weight).tolist() for snapshot in graph] == [[2, 2], [1]]


def test_months_can_be_joined_to_quarters(tmp_path: Path) -> None:
    (tmp_path / "enron_full_monthly").mkdir()
    rows = "snapshot,src,dst,weight\n1999-05,3,4,2\n1999-06,3,4,5\n1999-07,4,3,1\n"
    (tmp_path / "enron_full_monthly" / "edges.csv").write_text(rows)
    graph = load("enron_full_monthly", data_dir=tmp_path)
    assert graph.times == ("1999-05", "1999-06", "1999-07")
    quarters = load("enron_full_monthly", data_dir=tmp_path, clock=Calendar("quarter"))
    assert quarters.times == ("1999-Q2", "1999-Q3")
    assert np.asarray(quarters[0].weight).tolist() == [7]


def test_names_may_look_like_numbers_later(tmp_path: Path) -> None:
    (tmp_path / "canvote").mkdir()
    (tmp_path / "canvote" / "canVote_edgelist.txt").write_text("2006,john-baird,18,6\n2008,18,john-baird,2\n")
    graph = load("canvote", data_dir=tmp_path)
    assert list(graph.names or []) == ["18", "john-baird"]
    assert graph.directed
    assert len(load("canvote", data_dir=tmp_path, clock=Every(2))) == 2


@pytest.mark.parametrize(
    ("name", "header", "rows", "times"),
    [
        ("tkgl-icews", "date", ["788918400,0,1,5", "788918400,0,1,6", "789004800,1,2,5"], ("1995-01-01", "1995-01-02")),
        ("tkgl-smallpedia", "ts", ["1900,Q1,Q2,P5", "1901,Q3,Q1,P6"], (1900, 1901)),
    ],
)
def test_an_edge_list_of_tgb(
    name: str, header: str, rows: list[str], times: tuple[object, ...], tmp_path: Path
) -> None:
    (tmp_path / name).mkdir()
    with zipfile.ZipFile(tmp_path / name / f"{name}.zip", "w") as archive:
        archive.writestr(f"{name}_edgelist.csv", "\n".join([f"{header},head,tail,relation_type", *rows, ""]))
        archive.writestr(f"{name}_val_ns.pkl", b"")
    graph = load(name, data_dir=tmp_path)
    assert graph.times == times
    assert graph.num_nodes == 3
    assert graph.num_edges == 2
    assert graph.info["rows"] == len(rows)
    assert graph.names is not None


def test_quadruples_of_all_parts_are_one_stream(tmp_path: Path) -> None:
    (tmp_path / "icews14").mkdir()
    for part, row in {"train": "0\t3\t1\t0\t-1", "valid": "1\t3\t0\t24\t-1", "test": "5\t0\t1\t72\t-1"}.items():
        (tmp_path / "icews14" / f"{part}.txt.gz").write_bytes(gzip.compress(row.encode() + b"\n"))
    graph = load("icews14", data_dir=tmp_path)
    assert graph.times == (0, 24, 48, 72)
    assert [snapshot.num_edges for snapshot in graph] == [1, 1, 0, 1]
    assert list(graph.names or []) == [0, 1, 5]
