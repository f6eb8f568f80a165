from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save

from strobe.engine.checkpoint.serialization import (
    copy_tree,
    flatten_tree,
    is_intact,
    read_tree,
    same_structure,
    unflatten_tree,
    write_tree,
)
from strobe.errors import FormatError, OptionError
from tests.support.runs import same_tensors

TREE: dict[str, Any] = {
    "model": {"weight": torch.arange(6.0).view(2, 3).T, "empty": torch.zeros(0, 4), "half": torch.ones(2).bfloat16()},
    "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "betas": (0.9, 0.999)},
    "best": float("inf"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_tree(tmp_path / "state.safetensors", TREE)
    return tmp_path / "state.safetensors"


def forge(path: Path, values: Any, tensors: dict[str, torch.Tensor]) -> None:
    """Write other values with a checksum that fits."""
    zeros = b"0" * 64
    data = save(tensors, {"strobe": json.dumps({"sha256": zeros.decode(), "values": values})})
    path.write_bytes(data.replace(zeros, hashlib.sha256(data).hexdigest().encode(), 1))


def test_a_tree_is_read_as_it_was_written(path: Path) -> None:
    found = read_tree(path)
    assert same_tensors(found, TREE)
    assert found["model"]["half"].dtype == torch.bfloat16
    assert found["optimizer"]["state"][0]["step"].shape == ()


def test_safetensors_reads_the_tensors_by_their_names(path: Path) -> None:
    found = load_file(path)
    assert found.keys() == {"model.weight", "model.empty", "model.half", "optimizer.state.0.step"}
    assert same_tensors(found["model.weight"], TREE["model"]["weight"])


def test_equal_trees_have_equal_bytes(path: Path, tmp_path: Path) -> None:
    write_tree(tmp_path / "again", TREE)
    assert path.read_bytes() == (tmp_path / "again").read_bytes()


def test_every_flipped_bit_and_every_lost_byte_is_refused(path: Path) -> None:
    data = path.read_bytes()
    damaged = [data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :] for at in range(len(data))]
    damaged += [data[:size] for size in (0, 1, 70, len(data) - 1)] + [data + b"!"]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(FormatError, match=r"state\.safetensors is damaged"):
            read_tree(path)
    assert not is_intact(path)
    path.write_bytes(data)
    assert is_intact(path)


@pytest.mark.parametrize(
    "values",
    [{"$float": [1]}, {"$tuple": 3}, {"$dict": [[[], 1]]}, {"$dict": 3}, {"$tensor": []}, {"$tensor": "a.c"}],
)
def test_forged_values_are_refused(path: Path, values: Any) -> None:
    forge(path, {"a": values}, {"a.b": torch.zeros(1)})
    with pytest.raises(FormatError, match="is damaged"):
        read_tree(path)


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a checkpoint ran code",))


@pytest.mark.parametrize("data", [pickle.dumps(_Evil()), b"[" * 100_000, (9).to_bytes(8, "little") + b"[" * 100_000])
def test_a_file_of_another_format_is_refused(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(FormatError, match="is damaged"):
        read_tree(path)


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
TREES = st.recursive(
    st.one_of(PLAIN, TENSORS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3),
    ),
    max_leaves=12,
)


def same_types(first: Any, second: Any) -> bool:
    if isinstance(first, dict):
        return type(second) is dict and all(same_types(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return type(first) is type(second) and all(map(same_types, first, second))
    return type(first) is type(second)


@given(TREES)
def test_a_tree_survives_json(tree: Any) -> None:
    values, tensors = flatten_tree(tree)
    again = unflatten_tree(json.loads(json.dumps(values, allow_nan=False)), tensors)
    assert same_tensors(tree, again)
    assert same_types(tree, again)


def test_nan_survives_json() -> None:
    values, tensors = flatten_tree({"best": float("nan")})
    assert str(unflatten_tree(json.loads(json.dumps(values, allow_nan=False)), tensors)) == "{'best': nan}"


def test_tensors_of_one_flattened_name_are_distinct() -> None:
    tree = {"a.b": torch.zeros(1), "a": {"b": torch.ones(1)}}
    values, tensors = flatten_tree(tree)
    assert len(tensors) == 2
    assert same_tensors(unflatten_tree(values, tensors), tree)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), r"model\.odd is a object"),
        ({1.5: 1}, r"model\.odd is a dict"),
        (torch.eye(2).to_sparse(), r"model\.odd is a torch\.sparse"),
        (torch.zeros(1, dtype=torch.complex128), r"model\.odd is a .*complex128"),
    ],
)
def test_a_value_that_a_checkpoint_cannot_hold_is_named(value: object, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        flatten_tree({"model": {"odd": value}})


def test_a_copy_shares_nothing() -> None:
    weight = torch.zeros(2, requires_grad=True)
    tree = {"list": [weight], "tuple": (weight, {"inner": weight})}
    copy = copy_tree(tree)
    with torch.no_grad():
        weight.fill_(1)
    tree["list"].clear()  # type: ignore[attr-defined]
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
def test_a_tree_is_like_another_by_names_types_and_shapes(found: Any, fits: bool) -> None:
    assert same_structure(found, {"a": [7], "b": torch.zeros(2), "c": 1.0}) == fits
