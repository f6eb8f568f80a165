"""Metadata of a graph on disk: invalid fields, arrays, recipes and id spaces are refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strobe.errors import FormatError, InputError
from strobe.graph import (
    Concatenated,
    Degrees,
    DiskSink,
    Edges,
    FeatureProvider,
    GraphBuilder,
    GrowingGraph,
    PerCell,
    Standardized,
    from_edges,
    open_graph,
)
from strobe.graph.disk.metadata import check_id_space
from tests.support.forged import forge_array, forge_description
from tests.support.graphs import full_graph

Change = Callable[[dict[str, Any]], object]

_SHAPES: list[Any] = [[-1], [1 << 70], [2, 2], [3.0], ["3"], [[3]], [True], [], {}, "3", [4]]
_PARTS: list[Any] = [[], [None], [[]], {}, "degrees", [{"kind": "concatenated"}]]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    full_graph().with_features(None).save(tmp_path / "graph")
    return tmp_path / "graph"


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    features = Standardized(PerCell(np.empty((0, 2), np.float32)), (0.0, 0.0), (1.0, 1.0))
    with GrowingGraph.create(tmp_path / "grown", features=features) as growing:
        for t in range(2):
            growing.append(Edges([t], [t + 1]), x=np.ones((t + 2, 2)), names=range(2 * t, t + 2))
    assert len(open_graph(tmp_path / "grown")) == 2
    return tmp_path / "grown"


def refused(place: Path, changes: Iterable[Change], read: Callable[[Path], object] = open_graph) -> None:
    """Whether a graph whose description is changed is refused, whichever change it is."""
    original = (place / "graph.json").read_text()
    for number, change in enumerate(changes):
        forge_description(place, change)
        try:
            read(place)
        except FormatError:
            (place / "graph.json").write_text(original)
        else:
            pytest.fail(f"change {number} is accepted: {(place / 'graph.json').read_text()}")
    read(place)


_ALLOWED = {("features", "None"), ("directed", "True"), ("info", "{}")}


@pytest.mark.parametrize("field", ["num_nodes", "directed", "times", "arrays", "features", "labels", "info"])
def test_a_field_that_is_missing_or_of_a_wrong_type_or_size_is_refused(field: str, place: Path) -> None:
    wrong: list[Any] = [None, -1, 10**40, 4.0, "4", True, [4], {}, float("nan"), 3, 1]
    given: list[Any] = [value for value in wrong if (field, repr(value)) not in _ALLOWED]
    refused(place, [lambda meta: meta.pop(field), *(partial(dict.update, **{field: value}) for value in given)])


def test_a_wrong_description_of_an_array_is_refused(place: Path) -> None:
    dtypes = ("O", "<f4", ">i4", "<i2", "V4", "i4,i4", "(2,)i4", "<U4", "nonsense", "", None)
    entries: list[dict[str, Any]] = [{"shape": shape} for shape in _SHAPES]
    entries += [{"dtype": dtype} for dtype in dtypes]
    entries += [{"crc32": crc} for crc in (None, 3, "00000000", "")]

    def describe(meta: dict[str, Any], entry: dict[str, Any]) -> None:
        meta["arrays"]["col"].update(entry)

    refused(place, [partial(describe, entry=entry) for entry in entries])


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "z", "", "new_name_order"])
def test_only_known_arrays_are_read(name: str, place: Path) -> None:
    forge_description(place, lambda meta: meta["arrays"].update({name: meta["arrays"]["col"]}))
    with pytest.raises(FormatError, match="no array named"):
        open_graph(place)


def test_an_array_that_is_needed_and_not_described_is_refused(place: Path) -> None:
    needed = ("cell_ptr", "arc_ptr", "edge_count", "row_ptr", "col", "y", "name_ptr", "name_text")

    def forget(meta: dict[str, Any], name: str) -> None:
        meta["arrays"].pop(name)

    refused(place, [partial(forget, name=name) for name in needed])


def _nested(depth: int) -> dict[str, Any]:
    recipe: dict[str, Any] = {"kind": "degrees", "log": False}
    for _ in range(depth):
        recipe = {"kind": "concatenated", "parts": [recipe]}
    return recipe


_STANDARDIZED = {
    "kind": "standardized",
    "mean": [0.0, 0.0],
    "std": [1.0, 1.0],
    "inner": {"kind": "degrees", "log": True},
}


def test_invalid_recipe_is_refused(place: Path, grown: Path) -> None:
    kinds = ("static", "degrees", "random_signature", "concatenated", "standardized", "x", 3, "per_cell")
    recipes: list[dict[str, Any]] = [
        {"kind": "degrees", "log": "yes"},
        *({"kind": "random_signature", "width": width, "seed": 0} for width in (0, -1, 10**9, "8", 2.5, None)),
        *({"kind": "random_signature", "width": 8, "seed": seed} for seed in (-1, 1 << 64, "0", None)),
        *({"kind": "concatenated", "parts": parts} for parts in _PARTS),
        *({**_STANDARDIZED, "mean": mean} for mean in (None, [], [0.0], ["0", "0"], [float("nan"), 0.0], [10**400, 0])),
        *({**_STANDARDIZED, "std": std} for std in ([0.0, 1.0], [-1.0, 1.0], [True, True], [float("inf"), 1.0])),
        {**_STANDARDIZED, "inner": None},
        _nested(17),
        _nested(300),
        *({"kind": kind} for kind in kinds),
    ]
    refused(place, [partial(dict.update, features=recipe) for recipe in recipes])
    refused(grown, [partial(dict.update, features=recipe) for recipe in recipes[:-1]])  # it has rows per cell


@pytest.mark.parametrize("text", ["[" * 100_000, '{"format":' * 50_000, '{"format": 1e999, "a": ' + "9" * 5000 + "}"])
def test_a_description_that_cannot_be_parsed_is_refused(text: str, place: Path) -> None:
    (place / "graph.json").write_text(text)
    with pytest.raises(FormatError):
        open_graph(place)


def test_pipe_in_place_of_a_file_is_refused_at_once(place: Path) -> None:
    for name in ("col.npy", "graph.json"):
        (place / name).unlink()
        os.mkfifo(place / name)
        with pytest.raises(FormatError):
            open_graph(place)


def test_a_growing_graph_that_does_not_fit_its_parts_is_refused(grown: Path) -> None:
    shapes: list[Any] = [None, [3], ["2"], [-1], 2, [2, 2], [1 << 80]]
    changes: list[Change] = [
        *(lambda meta, name=name: meta.pop(name) for name in ("directed", "weighted", "features", "shapes", "info")),
        partial(dict.update, weighted=True),
        partial(dict.update, directed=False),
        partial(dict.update, directed="no"),
        *(lambda meta, x=x: meta["shapes"].update(x=x) for x in shapes),
        lambda meta: meta["shapes"].pop("y"),
        lambda meta: meta["shapes"].update(y=[]),
    ]
    refused(grown, changes)


def test_a_part_that_does_not_fit_is_refused(grown: Path) -> None:
    changes: list[Change] = [
        lambda meta: meta["info"].pop("edges"),
        *(lambda meta, edges=edges: meta["info"].update(edges=edges) for edges in (7, "1")),
        lambda meta: meta["info"].update(info=None),
        *(partial(dict.update, num_nodes=number) for number in (1, 4)),
        *(partial(dict.update, times=times) for times in ([], [0, 1])),
        lambda meta: meta["arrays"].pop("new_name_int"),
        partial(dict.update, labels={"kind": "degrees", "log": True}),
        lambda meta: meta["features"].update(mean=[1.0, 0.0]),
    ]

    def read(part: Path) -> list[Any]:
        graph = open_graph(part.parent)
        return [*(shot.x for shot in graph), *(graph.names or ())]

    refused(grown / "00000001", changes, read)


def test_parts_with_other_names_or_rows_are_refused(grown: Path) -> None:
    part = grown / "00000001"
    original = (part / "graph.json").read_text()
    for name, values in {
        "new_name_int": np.array([5, 6]),
        "x": np.ones((3, 1), np.float32),
        "weight": np.ones(1, np.float32),
    }.items():
        before = (part / f"{name}.npy").read_bytes() if (part / f"{name}.npy").exists() else None
        forge_array(part, name, values)
        with pytest.raises(FormatError):
            open_graph(grown)
        (part / "graph.json").write_text(original)
        if before is not None:
            (part / f"{name}.npy").write_bytes(before)
    assert open_graph(grown).features is not None


def test_degrees_and_info_that_are_right_are_accepted(place: Path) -> None:
    forge_description(place, lambda meta: meta.update(features=_nested(16), info={"a": float("nan")}))
    opened = open_graph(place)
    assert json.dumps(opened.info) == '{"a": NaN}'
    assert opened.features is not None
    assert (opened.features.rows(opened[0]) == Degrees().rows(opened[0])).all()


def test_python_values_that_json_converts_survive(tmp_path: Path) -> None:
    features = Standardized(Degrees(log=np.True_), tuple(np.ones(2, np.float32)), (1, 2))  # type: ignore[arg-type]
    builder = GraphBuilder(DiskSink(tmp_path / "graph"), num_nodes=np.int64(2), directed=1)  # type: ignore[arg-type]
    builder.add(Edges([0], [1]), time=True)
    builder.finish(features=features)
    opened = open_graph(tmp_path / "graph")
    assert opened.times == (1,)
    assert opened.directed is True
    assert opened.features is not None
    assert opened.features.shape == (2,)


def test_metadata_that_could_not_be_opened_is_not_written(tmp_path: Path) -> None:
    features: FeatureProvider = Degrees()
    for _ in range(17):
        features = Concatenated((features,))
    with pytest.raises(InputError, match="cannot be kept"):
        from_edges([[[0], [1]]], x=features).save(tmp_path / "graph")
    with pytest.raises(InputError, match="cannot be kept"):
        GrowingGraph.create(tmp_path / "graph", features=features)
    assert not any(tmp_path.iterdir())


GIB = 1 << 30


def test_a_large_id_space_must_be_used() -> None:
    check_id_space("g", 10**8, 0, GIB)
    check_id_space("g", 10**9, 10**9, GIB)
    check_id_space("g", 10**9, 3, 64 * GIB)
    with pytest.raises(FormatError, match="1,000,000,000 nodes but only 3 cells"):
        check_id_space("g", 10**9, 3, GIB)


def test_a_forged_number_of_nodes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strobe.graph.disk.metadata.process_memory_bytes", lambda: 8 * GIB)
    from_edges([[[0], [1]]], nodes=[[0, 1]], num_nodes=3).save(tmp_path / "graph")
    forge_description(tmp_path / "graph", lambda meta: meta.update(num_nodes=3_000_000_000))
    with pytest.raises(FormatError, match="3,000,000,000 nodes"):
        open_graph(tmp_path / "graph")
