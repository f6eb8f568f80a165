"""Checked reading of ``Problem.state()`` from a run directory: kernels index arrays of these sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from strobe.errors import FormatError
from strobe.ops.sparse.csr import FloatArray


def read_numbers(state: Mapping[str, Any], name: str, count: int | None = None) -> FloatArray:
    """A list of finite numbers of a saved state, float64.

    Args:
        state: a ``Problem.state()`` from JSON.
        name: the key of the list.
        count: the length of the list; None: any but 0.

    Raises:
        FormatError: the state has another value.
    """
    values = state.get(name) if isinstance(state, Mapping) else None
    numbers = isinstance(values, list) and all(type(each) in (int, float) and abs(each) < 1e300 for each in values)
    if not numbers or not values or (count is not None and len(values) != count):
        wanted = "numbers" if count is None else f"{count} numbers"
        raise FormatError(f"the fitted state of the run is damaged: {name} are not {wanted}")
    return np.array(values, np.float64)


def read_classes(state: Mapping[str, Any], name: str) -> npt.NDArray[np.int64]:
    """Ascending whole numbers of a saved state, int64.

    Raises:
        FormatError: the state has another value.
    """
    values = state.get(name)
    integers = isinstance(values, list) and all(type(each) is int and abs(each) < 2**62 for each in values)
    if not integers or not values or sorted(set(values)) != values:
        raise FormatError(f"the fitted state of the run is damaged: {name} are not ascending whole numbers")
    return np.array(values, np.int64)


def read_integer(state: Mapping[str, Any], name: str) -> int:
    """A whole number of a saved state, such as a seed: at least 0.

    Raises:
        FormatError: the state has another value.
    """
    value = state.get(name)
    if type(value) is not int or not 0 <= value < 2**63:
        raise FormatError(f"the fitted state of the run is damaged: {name} is not a whole number")
    return value


def read_flag(state: Mapping[str, Any], name: str) -> bool:
    """True or False of a saved state.

    Raises:
        FormatError: the state has another value.
    """
    value = state.get(name)
    if type(value) is not bool:
        raise FormatError(f"the fitted state of the run is damaged: {name} is not true or false")
    return value
