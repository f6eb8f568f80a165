from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from strobe.graph.datasets import load
from strobe.graph.ingest import Calendar, Every


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


def test_whoever_was_seen_stays_and_repeated_edges_are_counted(tmp_path: Path) -> None:
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
