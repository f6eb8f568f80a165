from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.errors import InputError, UnknownNameError
from strobe.graph import NodeNames

integers = st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=30).map(sorted)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
strings = st.lists(text, unique=True, max_size=30).map(lambda names: sorted(names, key=str.encode))


@settings(deadline=None, max_examples=100)
@given(integers | strings)
def test_every_name_is_found_at_its_node(listed: Any) -> None:
    names = NodeNames.from_names(listed)
    assert len(names) == len(listed)
    assert list(names) == listed
    assert [names.find(name) for name in listed] == list(range(len(listed)))
    stored = NodeNames.from_arrays({"col": np.zeros(3), **names.arrays()})
    assert list(stored or ()) == listed


@pytest.mark.parametrize("listed", [[10, 20, 30], ["a", "bb", "ö"]])
def test_names_are_a_sequence(listed: Any) -> None:
    names = NodeNames.from_names(listed)
    assert names[-1] == listed[-1]
    assert names[np.int64(1)] == listed[1]
    assert names[::2] == listed[::2]
    for beyond in (3, -4):
        with pytest.raises(IndexError, match=f"node {beyond} of 3"):
            names[beyond]


def test_an_integer_name_is_found_by_its_text() -> None:
    assert NodeNames.from_names([-5, 7, 100]).find("-5") == 0
    assert NodeNames.from_names([-5, 7, 100]).find("100") == 2


@pytest.mark.parametrize(
    "wanted", ["x", "", "-", "--5", "²", "007", "7.0", " 7", "1_00", 8, -6, 10**30, "9" * 40, None]
)
def test_a_name_that_is_no_node_is_unknown(wanted: Any) -> None:
    with pytest.raises(UnknownNameError, match="no node named"):
        NodeNames.from_names([-5, 7, 100]).find(wanted)
    with pytest.raises(UnknownNameError, match="no node named"):
        NodeNames.from_names(["alice", "bob"]).find(wanted)
    with pytest.raises(UnknownNameError, match="Known: none"):
        NodeNames.from_names([]).find(wanted)


def test_an_unknown_name_comes_with_its_neighbours() -> None:
    names = NodeNames.from_names(sorted(f"user{i:03}" for i in range(500)))
    with pytest.raises(UnknownNameError, match=r"did you mean 'user123'\? Known: .*user123, user124"):
        names.find("user123x")


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ([3, 1], "1 comes after 3"),
        (["a", "a"], "'a' comes after 'a'"),
        (["a", 1], "all integers or all strings, 1"),
        ([1.5], "all integers or all strings, 1.5"),
        ([1, None], "all integers or all strings"),
        ([2**63], "fit into 64 bits"),
        (["\ud800"], "not valid text"),
    ],
)
def test_names_that_cannot_be_searched_are_refused(listed: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        NodeNames.from_names(listed)


def test_text_is_ordered_by_its_bytes_beyond_ascii_too() -> None:
    names = NodeNames.from_names(["", "Z", "a", "é", "\uffff", "😀"])
    assert names.find("") == 0
    assert names.find("😀") == 5
