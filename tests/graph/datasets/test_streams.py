from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

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


def test_the_default_cut_is_the_published_number_of_snapshots(tmp_path: Path) -> None:
    text = "% sym\n1 2 1 1100000000\n2 3 1 1200000000\n"
    assert len(load("soc-youtube-growth", data_dir=published(tmp_path, "soc-youtube-growth", text))) == 80


def test_a_symmetric_file_gives_an_undirected_graph(tmp_path: Path) -> None:
    text = "% sym unweighted\n1 2 1 1100000000\n2 1 1 1100000005\n"
    graph = load("soc-youtube-growth", data_dir=published(tmp_path, "soc-youtube-growth", text), clock=Into(1))
    assert not graph.directed
    assert graph.num_edges == 1
    assert graph[0].weight is not None
    assert graph[0].weight.tolist() == [2, 2]


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
