from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from strobe.errors import InputError
from strobe.graph.arrays import as_features, as_ids, as_integers, as_labels, as_weights, read_only


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("f2", "f4"),
        ("f4", "f4"),
        (">f4", "f4"),
        ("f8", "f8"),
        (">f8", "f8"),
        ("g", "f8"),
        ("i8", "f4"),
        ("u1", "f4"),
        ("?", "f4"),
    ],
)
def test_numbers_become_native_floats_of_32_bits_unless_they_have_64(given: str, kept: str) -> None:
    array = np.array([0, 1], given)
    for convert in (as_features, as_weights):
        converted = convert(array, "values")
        assert converted.dtype == np.dtype(kept)
        assert converted.dtype.isnative
        assert converted.ravel().tolist() == [0, 1]


@pytest.mark.parametrize("given", ["?", "i1", "u2", ">i4", "i8", "u8"])
def test_classes_become_64_bit_integers_and_targets_stay_floats(given: str) -> None:
    assert as_labels(np.array([0, 1], given)).dtype == np.int64
    assert as_labels(np.array([0, 1], np.float16)).dtype == np.float32
    assert as_labels(np.array([[0.5, 1.0]])).dtype == np.float64


def test_array_of_the_right_dtype_is_not_copied() -> None:
    x, y, ids = np.ones((2, 3), np.float32), np.arange(3), np.arange(3, dtype=np.int32)
    assert np.shares_memory(as_features(x), x)
    assert np.shares_memory(as_labels(y), y)
    assert np.shares_memory(as_ids(ids, "ids"), ids)


@pytest.mark.parametrize("empty", [[], np.empty(0, "U1"), np.empty(0, object), np.empty(0, bool)])
def test_an_empty_list_of_ids_may_have_any_type(empty: Any) -> None:
    assert as_ids(empty, "ids").dtype == np.int64


def test_unsigned_integers_become_signed_or_are_refused() -> None:
    assert as_integers(np.array([2**63 - 1], np.uint64), "ids").tolist() == [2**63 - 1]
    assert as_integers(np.array([7], np.uint64), "ids").dtype == np.int64
    with pytest.raises(InputError, match="ids contain 9223372036854775808, which is too large"):
        as_integers(np.array([5, 2**63], np.uint64), "ids")


def test_a_read_only_view_does_not_lock_the_array_behind_it() -> None:
    array = np.zeros(2)
    view = read_only(array)
    array[0] = 1
    assert view[0] == 1
    assert not view.flags.writeable
