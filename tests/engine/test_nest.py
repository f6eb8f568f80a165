from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from strobe.engine.nest import copied, is_like, put_together, taken_apart
from strobe.errors import FormatError, OptionError
from tests.engine.runs import same_tensors

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
    values, tensors = taken_apart(nest)
    again = put_together(json.loads(json.dumps(values, allow_nan=False)), tensors)
    assert same_tensors(nest, again)
    assert same_kinds(nest, again)


def test_a_number_that_is_none_survives() -> None:
    values, tensors = taken_apart({"best": float("nan")})
    assert str(put_together(json.loads(json.dumps(values, allow_nan=False)), tensors)) == "{'best': nan}"


def test_tensors_of_one_name_are_told_apart() -> None:
    nest = {"a.b": torch.zeros(1), "a": {"b": torch.ones(1)}}
    values, tensors = taken_apart(nest)
    assert len(tensors) == 2
    assert same_tensors(put_together(values, tensors), nest)


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
        taken_apart({"model": {"odd": value}})


def test_a_tensor_that_is_not_there_is_named() -> None:
    values, _ = taken_apart({"model": {"weight": torch.zeros(1)}})
    with pytest.raises(FormatError, match=r"model\.weight is not there"):
        put_together(values, {})


def test_a_copy_shares_nothing() -> None:
    weight = torch.zeros(2, requires_grad=True)
    nest = {"list": [weight], "tuple": (weight, {"inner": weight})}
    copy = copied(nest)
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
    assert is_like(found, {"a": [7], "b": torch.zeros(2), "c": 1.0}) == fits
