from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.checkpoint.state_dict_loader import load

from strobe.engine.checkpoint.folder import (
    check_folder,
    copy_tree,
    flatten_tree,
    read_folder,
    same_structure,
    unflatten_tree,
    write_folder,
)
from strobe.errors import FormatError, OptionError
from tests.support.runs import same_tensors

NEST: dict[str, Any] = {
    "model": {"weight": torch.arange(6.0).view(2, 3), "empty": torch.zeros(0, 4), "half": torch.ones(2).bfloat16()},
    "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "betas": (0.9, 0.999)},
    "best": float("inf"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_folder(tmp_path / "kept", NEST)
    return tmp_path / "kept"


def told_anew(folder: Path) -> None:
    """Somebody who changes files on purpose changes their sums, too."""
    names = [line.split("  ")[1] for line in (folder / "SHA256SUMS").read_text().splitlines()]
    sums = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (folder / "SHA256SUMS").write_text("".join(sums))


def test_what_is_written_is_read(folder: Path) -> None:
    found = read_folder(folder)
    assert same_tensors(found, NEST)
    assert found["model"]["half"].dtype == torch.bfloat16


def test_the_same_values_have_the_same_bytes_wherever_they_are(folder: Path, tmp_path: Path) -> None:
    write_folder(tmp_path / "again", NEST)
    assert (folder / "SHA256SUMS").read_text() == (tmp_path / "again" / "SHA256SUMS").read_text()
    assert not any(str(tmp_path).encode() in path.read_bytes() for path in folder.iterdir())


@pytest.mark.filterwarnings("ignore:torch.distributed is")
def test_torch_reads_the_tensors_by_their_names(folder: Path) -> None:
    found = {"model": {name: torch.full_like(value, 9) for name, value in NEST["model"].items()}}
    load(found, checkpoint_id=folder)
    assert same_tensors(found["model"], NEST["model"])


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a checkpoint ran code",))


def test_the_metadata_is_for_torch_and_never_unpickled(folder: Path) -> None:
    (folder / ".metadata").write_bytes(pickle.dumps(_Evil()))
    with pytest.raises(FormatError, match=r"\.metadata is damaged: it is not as it was written"):
        read_folder(folder)
    told_anew(folder)
    assert same_tensors(read_folder(folder), NEST)


@pytest.mark.parametrize("line", [f"{'0' * 64}  /dev/zero", f"{'0' * 64}  ../kept/values.json", "nonsense", ""])
def test_sums_name_the_files_of_the_folder_and_no_others(folder: Path, line: str) -> None:
    with (folder / "SHA256SUMS").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(FormatError, match="SHA256SUMS is damaged"):
        read_folder(folder)


@pytest.mark.parametrize(
    "edit",
    [
        lambda found: found["tensors"].update({"model.weight": [0, 1 << 60]}),
        lambda found: found["tensors"].update({"model.weight": [-1, 10]}),
        lambda found: found["tensors"].update({"model.weight": [0, -1]}),
        lambda found: found["tensors"].update({"model.weight": "here"}),
        lambda found: found.update(tensors=[]),
        lambda found: found.pop("values"),
        lambda found: found["values"].update(best={"$float": [1]}),
        lambda found: found["values"].update(best={"$tuple": 3}),
        lambda found: found["values"].update(best={"$dict": [[[], 1]]}),
        lambda found: found["values"].update(best={"$tensor": []}),
    ],
)
def test_values_that_were_forged_are_refused(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    found = json.loads((folder / "values.json").read_text())
    edit(found)
    (folder / "values.json").write_text(json.dumps(found))
    told_anew(folder)
    with pytest.raises(FormatError, match="is damaged"):
        read_folder(folder)


def test_values_nested_without_end_are_refused(folder: Path) -> None:
    (folder / "values.json").write_text("[" * 100_000)
    told_anew(folder)
    with pytest.raises(FormatError, match=r"values\.json is damaged"):
        read_folder(folder)


def test_a_tensor_may_be_nothing_else(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = torch.save
    monkeypatch.setattr(torch, "save", lambda value, file: real(_Evil(), file))
    write_folder(tmp_path / "evil", NEST)
    with pytest.raises(FormatError, match=r"evil/.* is damaged"):
        read_folder(tmp_path / "evil")


def test_values_that_name_other_tensors_are_refused(folder: Path) -> None:
    text = (folder / "values.json").read_text()
    (folder / "values.json").write_text(text.replace('{"$tensor": "model.weight"}', '{"$tensor": "model.height"}'))
    told_anew(folder)
    with pytest.raises(FormatError, match=r"values\.json is damaged: the tensor model\.height is not there"):
        read_folder(folder)


def test_a_folder_is_checked_without_being_read(folder: Path) -> None:
    check_folder(folder)
    with (folder / "__0_0.distcp").open("ab") as file:
        file.write(b"!")
    with pytest.raises(FormatError, match=r"__0_0\.distcp is damaged: it is not as it was written"):
        check_folder(folder)


def test_sums_that_were_cut_are_refused_whatever_is_missing(folder: Path) -> None:
    sums = (folder / "SHA256SUMS").read_text()
    for length in (len(sums) - 1, len(sums) - 70, 0):
        (folder / "SHA256SUMS").write_text(sums[:length])
        with pytest.raises(FormatError, match="SHA256SUMS is damaged"):
            check_folder(folder)


KEYS = st.one_of(st.text(max_size=3), st.sampled_from(["$tensor", "$tuple", "a", "a.b"]), st.integers())
TENSORS = st.sampled_from(
    [
        torch.arange(3),
        torch.tensor(1.5),
        torch.zeros(0, 2),
        torch.ones(2, 2, dtype=torch.bfloat16),
        torch.tensor([True]),
    ]
)
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3))
NESTS = st.recursive(
    st.one_of(PLAIN, TENSORS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3),
    ),
    max_leaves=12,
)


def same_kinds(first: Any, second: Any) -> bool:
    if isinstance(first, dict):
        return type(second) is dict and all(same_kinds(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return type(first) is type(second) and all(map(same_kinds, first, second))
    return type(first) is type(second)


@given(NESTS)
def test_a_nest_survives_json(nest: Any) -> None:
    values, tensors = flatten_tree(nest)
    again = unflatten_tree(json.loads(json.dumps(values, allow_nan=False)), tensors)
    assert same_tensors(nest, again)
    assert same_kinds(nest, again)


def test_a_number_that_is_none_survives() -> None:
    values, tensors = flatten_tree({"best": float("nan")})
    assert str(unflatten_tree(json.loads(json.dumps(values, allow_nan=False)), tensors)) == "{'best': nan}"


def test_tensors_of_one_flattened_name_are_distinct() -> None:
    nest = {"a.b": torch.zeros(1), "a": {"b": torch.ones(1)}}
    values, tensors = flatten_tree(nest)
    assert len(tensors) == 2
    assert same_tensors(unflatten_tree(values, tensors), nest)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), r"model\.odd is a object"),
        ({1.5: 1}, r"model\.odd is a dict"),
        (torch.eye(2).to_sparse(), r"model\.odd is a sparse tensor"),
    ],
)
def test_what_a_checkpoint_cannot_hold_is_named(value: object, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        flatten_tree({"model": {"odd": value}})


def test_a_tensor_that_is_not_there_is_named() -> None:
    values, _ = flatten_tree({"model": {"weight": torch.zeros(1)}})
    with pytest.raises(FormatError, match=r"model\.weight is not there"):
        unflatten_tree(values, {})


def test_a_copy_shares_nothing() -> None:
    weight = torch.zeros(2, requires_grad=True)
    nest = {"list": [weight], "tuple": (weight, {"inner": weight})}
    copy = copy_tree(nest)
    with torch.no_grad():
        weight.fill_(1)
    nest["list"].clear()  # type: ignore[attr-defined]
    assert same_tensors(copy, {"list": [torch.zeros(2)], "tuple": (torch.zeros(2), {"inner": torch.zeros(2)})})
    assert not copy["list"][0].requires_grad


@pytest.mark.parametrize(
    ("found", "fits"),
    [
        ({"a": [1, 2], "b": torch.ones(2), "c": 3}, True),
        ({"a": [], "b": None, "c": 0.5}, True),
        ({"a": [1], "b": torch.ones(3), "c": 3}, False),
        ({"a": [1], "b": torch.ones(2).double(), "c": 3}, False),
        ({"a": ["x"], "b": torch.ones(2), "c": 3}, False),
        ({"a": (1,), "b": torch.ones(2), "c": 3}, False),
        ({"a": [1], "b": torch.ones(2), "c": True}, False),
        ({"a": [1], "b": torch.ones(2)}, False),
        ([], False),
    ],
)
def test_a_nest_is_like_another_by_names_types_and_shapes(found: Any, fits: bool) -> None:
    assert same_structure(found, {"a": [7], "b": torch.zeros(2), "c": 1.0}) == fits
