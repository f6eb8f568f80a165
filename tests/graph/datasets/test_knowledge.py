from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pytest

from strobe.graph.datasets import load


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
