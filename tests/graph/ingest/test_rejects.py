"""The file of rejected rows: no input and no other file is lost for it, and it holds what the last run left out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from strobe.errors import InputError, OptionError
from strobe.graph.ingest import Every, NodeTable, ingest
from strobe.graph.ingest.rejects import rejects_path

GOOD, BAD = "src,dst,time\n1,2,3\n2,3,4\n", "src,dst,time\n1,2,3\n1,2,soon\n"
EARLIER = "source,place,column,value,reason\r\nearlier.csv,7,time,never,is not a number\r\n"


def read(source: Any, rejects: Path | None, **options: Any) -> Any:
    usual: dict[str, Any] = {"src": "src", "dst": "dst", "time": "time", "clock": Every(5), "time_unit": "number"}
    return ingest(source, skip_bad_rows=True, rejects=rejects, **(usual | options))


@pytest.fixture
def events(tmp_path: Path) -> Path:
    path = tmp_path / "events.csv"
    path.write_text(BAD)
    return path


@pytest.mark.parametrize("how", ["itself", "symlink", "hard link", "other name"])
def test_an_input_is_refused_as_rejects_file_and_not_touched(events: Path, how: str) -> None:
    rejects = events.parent / "link.csv"
    if how == "symlink":
        rejects.symlink_to(events)
    elif how == "hard link":
        os.link(events, rejects)
    else:
        rejects = events if how == "itself" else events.parent / ".." / events.parent.name / events.name
    with pytest.raises(OptionError, match="input"):
        read([events], rejects)
    assert events.read_text() == BAD


def test_a_node_table_is_refused_as_rejects_file(events: Path) -> None:
    nodes = events.parent / "nodes.csv"
    nodes.write_text("id,x\n1,1\n")
    with pytest.raises(OptionError, match="input"):
        read(events, nodes, nodes=NodeTable(source=nodes, id="id", features=["x"]))
    assert nodes.read_text() == "id,x\n1,1\n"


def test_a_file_that_holds_something_else_is_not_overwritten(events: Path) -> None:
    notes = events.parent / "notes.csv"
    notes.write_text("precious\n")
    with pytest.raises(OptionError, match="holds something else"):
        read(events, notes)
    assert notes.read_text() == "precious\n"


def test_the_output_graph_and_directories_are_refused(events: Path) -> None:
    with pytest.raises(OptionError, match="the graph is written there"):
        read(events, events.parent / "graph" / "bad.csv", out=events.parent / "graph")
    with pytest.raises(OptionError, match="directory"):
        read(events, events.parent)


def test_a_run_that_fails_before_all_is_read_keeps_the_earlier_file(events: Path) -> None:
    rejects = events.parent / "bad.csv"
    rejects.write_bytes(EARLIER.encode())
    with pytest.raises(InputError, match="there is no file"):
        read([events, events.parent / "nowhere.csv"], rejects)
    assert rejects.read_bytes() == EARLIER.encode()


def test_bad_rows_replace_the_earlier_file_also_where_no_good_row_is_left(events: Path) -> None:
    rejects = events.parent / "bad.csv"
    rejects.write_bytes(EARLIER.encode())
    events.write_text("src,dst,time\n1,2,soon\n")
    with pytest.raises(InputError, match=r"see .*bad\.csv"):
        read(events, rejects)
    assert "soon" in rejects.read_text()
    assert "earlier" not in rejects.read_text()


def test_a_run_without_bad_rows_removes_the_earlier_file(events: Path) -> None:
    rejects = events.parent / "bad.csv"
    rejects.write_bytes(EARLIER.encode())
    events.write_text(GOOD)
    read(events, rejects)
    assert not rejects.exists()


def test_a_link_to_a_rejects_file_and_a_device_stay_what_they_are(events: Path) -> None:
    target, link = events.parent / "target.csv", events.parent / "link.csv"
    target.write_bytes(EARLIER.encode())
    link.symlink_to(target)
    read(events, link)
    assert link.is_symlink()
    assert "soon" in target.read_text()
    read(events, Path("/dev/null"))
    assert Path("/dev/null").is_char_device()


def test_a_rejects_file_without_skip_bad_rows_is_refused(events: Path) -> None:
    with pytest.raises(OptionError, match="skip_bad_rows"):
        ingest(events, src="src", dst="dst", time="time", clock=Every(5), rejects=events.parent / "bad.csv")


def test_a_graph_in_the_working_directory_has_its_rejects_beside_it(
    events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = events.parent / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert rejects_path(".", None) == events.parent / "here.rejects.csv"
