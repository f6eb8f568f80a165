from __future__ import annotations

import contextlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings

import strobe
from strobe.errors import FormatError, InputError, OptionError
from strobe.graph import (
    Degrees,
    DiskSink,
    DynamicGraph,
    Edges,
    GraphBuilder,
    NodeNames,
    PerCell,
    Standardized,
    Static,
    from_edges,
    open_graph,
)
from strobe.graph.disk import directory as disk_module
from tests.graph.disk.conftest import only_graph
from tests.support.graphs import AWKWARD, PlainGraph, assert_same, dynamic_graphs, full_graph

FILES = [
    *("arc_ptr", "cell_ptr", "col", "edge_count", "name_ptr", "name_text", "node", "row_ptr", "weight", "x", "y")
]  # what full_graph() stores


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "graph"


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_graphs_survive_the_disk(name: str, place: Path) -> None:
    graph = AWKWARD[name].build()
    saved = graph.save(place)
    assert saved == graph
    assert_same(strobe.open(place, verify=True), AWKWARD[name])
    assert only_graph(place)


@settings(deadline=None, max_examples=40)
@given(dynamic_graphs(min_snapshots=2))
def test_any_graph_or_view_survives_the_disk(tmp_path_factory: pytest.TempPathFactory, plain: PlainGraph) -> None:
    folder = tmp_path_factory.mktemp("view")
    nodes = range(0, plain.num_nodes, 2)
    assert_same(plain.build().save(folder / "all"), plain)
    assert_same(plain.build()[::2].save(folder / "a"), plain.slice(slice(None, None, 2)))
    assert_same(plain.build()[1:].subset(nodes).save(folder / "b"), plain.subset(nodes).slice(slice(1, None)))
    assert_same(plain.build()[:0].save(folder / "c"), plain.slice(slice(0)))


@pytest.mark.parametrize("names", [["", "anna", "bob", "ö"], [-3, 0, 7, 10**12]])
def test_names_times_and_info_survive(names: Any, place: Path) -> None:
    for opened in (full_graph(NodeNames.from_names(names)).save(place), open_graph(str(place))):
        assert opened.names is not None
        assert list(opened.names) == names
        assert opened.names.find(names[2]) == 2
        assert opened.times == ("Mon", 2)
        assert opened.info == {"source": "by hand", "licence": None, "of": [1, 2.5, "ö"]}


@pytest.mark.parametrize(
    "features",
    [
        Degrees(),
        Standardized(Degrees(log=True), (0.1, 0.2), (1 / 3, 2.0)),
        Standardized(Static(np.arange(12.0).reshape(4, 3)), (0.0, 1.0, 2.0), (1.0, 2.0, 3.0)),
        Standardized(PerCell(np.arange(14.0).reshape(7, 2)), (0.5, 0.5), (3.0, 4.0)),
    ],
)
def test_the_recipe_of_derived_features_survives(features: Any, place: Path) -> None:
    graph = full_graph().with_features(features)
    saved = graph.save(place)
    assert saved == graph
    assert saved.features is not None
    assert saved.features.recipe() == features.recipe()
    assert graph[1:].save(place, overwrite=True) == graph[1:]
    assert graph[:0].save(place, overwrite=True).features is not None
    assert graph.subset([0, 3]).save(place, overwrite=True) == graph.subset([0, 3])


def test_opened_arrays_are_read_only(place: Path) -> None:
    graph = full_graph().save(place)
    for array in (graph[0].col, graph[0].nodes, graph[0].weight, graph[0].x, graph[1].y):
        assert array is not None
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_opening_parses_no_python(place: Path) -> None:
    """Which fails now and then where two threads do it (CPython 3.11, gh-106905)."""
    full_graph().save(place)
    with patch("ast.literal_eval") as parse, contextlib.suppress(ValueError):
        open_graph(place)
    assert not parse.called


@pytest.mark.parametrize("info", [{2: "b", 10: "a"}, {"a": (1, 2), "b": float("nan"), "c": {"é": "\ud800"}}])
def test_info_is_stored_as_json(info: Any, place: Path) -> None:
    builder = GraphBuilder(DiskSink(place), num_nodes=1)
    builder.finish(info=info)
    assert repr(open_graph(place).info) == repr(json.loads(json.dumps(info)))


def test_info_that_is_not_json_is_refused(place: Path) -> None:
    with pytest.raises(InputError, match="info cannot be kept as JSON"), DiskSink(place) as sink:
        GraphBuilder(sink, num_nodes=1).finish(info={"when": np.int64(3)})
    assert not any(place.parent.iterdir())


def test_a_graph_in_which_features_have_no_columns_survives(place: Path) -> None:
    graph = from_edges([[[0], [1]]], x=np.empty((2, 0)))
    assert graph.save(place) == graph


def test_existing_graph_is_replaced_only_with_overwrite(place: Path) -> None:
    first, second = full_graph(), full_graph(weight=9.0)
    first.save(place)
    with pytest.raises(OptionError, match="already holds a graph"):
        second.save(place)
    assert open_graph(place) == first
    assert second.save(place, overwrite=True) == second
    assert open_graph(place) == second
    assert only_graph(place)


def test_a_graph_can_be_saved_over_itself_while_it_is_open(place: Path) -> None:
    opened = full_graph().save(place)
    assert opened[1:].save(place, overwrite=True) == full_graph()[1:]
    assert opened == full_graph()  # its pages are still mapped


@pytest.mark.parametrize("overwrite", [False, True])
def test_directory_that_is_no_graph_is_never_replaced(place: Path, overwrite: bool) -> None:
    place.mkdir()
    (place / "thesis.tex").write_text("years of work")
    file = place.parent / "file"
    file.write_text("more work")
    for target in (place, file):
        with pytest.raises(OptionError, match="is not a graph"):
            full_graph().save(target, overwrite=overwrite)
    assert (place / "thesis.tex").read_text() == "years of work"
    assert file.read_text() == "more work"
    assert sorted(path.name for path in place.parent.iterdir()) == ["file", "graph"]


def test_missing_directories_are_made_and_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    assert full_graph().save(tmp_path / "a" / "b" / "graph") == full_graph()
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match=r"cannot write to .*file.graph"):
        full_graph().save(tmp_path / "file" / "graph")


def test_a_link_is_written_through(tmp_path: Path) -> None:
    full_graph().save(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    changed = full_graph(weight=3.0)
    changed.save(tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert open_graph(tmp_path / "real") == changed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]


@pytest.mark.parametrize("name", ["with space", "a[b]*?", "ü.v2", ".hidden", "g.writing"])
def test_a_graph_may_have_any_name(name: str, tmp_path: Path) -> None:
    for overwrite in (False, True):
        assert full_graph().save(tmp_path / name, overwrite=overwrite) == full_graph()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_sink_without_finish_leaves_no_files(place: Path) -> None:
    with contextlib.suppress(KeyboardInterrupt), DiskSink(place) as sink:
        GraphBuilder(sink, num_nodes=2).add(Edges([0], [1]))
        raise KeyboardInterrupt
    assert not any(place.parent.iterdir())


def test_a_place_without_a_graph_is_named(place: Path) -> None:
    with pytest.raises(FormatError, match=r"there is no graph at .*graph"):
        open_graph(place)
    place.mkdir()
    with pytest.raises(FormatError, match="strobe ingest"):
        open_graph(place)
    file = place / "table.csv"
    file.write_text("a,b\n")
    with pytest.raises(FormatError, match="is not a saved graph"):
        open_graph(file)


def _flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("name", FILES)
def test_an_array_that_is_damaged_cut_longer_or_missing_is_named(name: str, place: Path) -> None:
    full_graph().save(place)
    file = place / f"{name}.npy"
    for at in (0, 20, 127, 128, -1):  # magic, header, its end, first and last byte of the data
        _flip(file, at)
        with pytest.raises(FormatError, match=f"{name}.npy is damaged"):
            open_graph(place)
        _flip(file, at)
    assert open_graph(place) == full_graph()
    for change in (-1, 2):
        os.truncate(file, file.stat().st_size + change)
        with pytest.raises(FormatError, match=f"{name}.npy is damaged: .* bytes"):
            open_graph(place)
    file.unlink()
    with pytest.raises(FormatError, match=f"{name}.npy is missing"):
        open_graph(place)


def test_flipped_bit_in_metadata_is_detected_or_harmless(place: Path) -> None:
    full_graph().save(place)
    found = 0
    size = (place / "graph.json").stat().st_size
    for at in range(0, size, 3):
        _flip(place / "graph.json", at)
        try:
            assert open_graph(place) == full_graph()  # a blank that became another blank
        except FormatError:
            found += 1
        _flip(place / "graph.json", at)
    assert found > size / 3 / 2


def _edit(place: Path, **changes: Any) -> None:
    meta = json.loads((place / "graph.json").read_text())
    (place / "graph.json").write_text(json.dumps({**meta, **changes}))


def test_edited_metadata_is_refused_and_reformatted_metadata_accepted(place: Path) -> None:
    full_graph().save(place)
    _edit(place)
    assert open_graph(place) == full_graph()
    _edit(place, num_nodes=5)
    with pytest.raises(FormatError, match="edited"):
        open_graph(place)
    for version in (1, "1.5", None):
        _edit(place, version=version)
        with pytest.raises(FormatError, match=f"version {version}"):
            open_graph(place)


@pytest.mark.parametrize("text", ["{", "", "[1, 2]", "3", "{}", '{"format": "other"}', "\udcff\udcfe"])
def test_metadata_that_is_not_of_a_graph_is_refused(text: str, place: Path) -> None:
    place.mkdir()
    (place / "graph.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(FormatError, match=r"graph.json is damaged|'other'"):
        open_graph(place)


@pytest.mark.parametrize("other", [replace(full_graph(weight=5.0), info={}), AWKWARD["no edges"].build()])
def test_a_graph_that_is_replaced_while_it_is_opened_is_not_mixed_with_the_new_one(
    other: DynamicGraph, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_graph().save(place)
    open_array = disk_module._open_array

    def replacing(folder: Path, name: str, entry: dict[str, Any]) -> Any:
        monkeypatch.setattr(disk_module, "_open_array", open_array)
        other.save(place, overwrite=True)
        return open_array(folder, name, entry)

    monkeypatch.setattr(disk_module, "_open_array", replacing)
    opened = open_graph(place)
    assert opened == other
    assert opened.info == {}  # the description too is the new one's


def test_verification_reports_progress(place: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    full_graph().save(place)
    open_graph(place, on_progress=lambda done, total: seen.append((done, total)))
    assert seen == []  # it takes no time
    graph = from_edges([[[0], [1]]], num_nodes=1 << 18, x=np.zeros((1 << 18, 64), np.float32))
    graph.save(place, overwrite=True)
    open_graph(place, on_progress=lambda done, total: seen.append((done, total)))
    assert len(seen) > 3
    assert seen == sorted(seen)
    assert seen[-1] == (65, 65)  # MiB: 64 of features, 1 of row_ptr
