"""What a run has fitted, as its directory gives it back: checked, because kernels index arrays of these sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from strobe.errors import FormatError
from strobe.ops.csr import FloatArray


def fitted_numbers(state: Mapping[str, Any], name: str, count: int | None = None) -> FloatArray:
    """A list of finite numbers of a saved state, float64.

    Args:
        state: of ``Problem.state()``, after JSON.
        name: of the list in it.
        count: how many numbers there must be; None: any number but none.

    Raises:
        FormatError: the state holds something else.
    """
    found = state.get(name) if isinstance(state, Mapping) else None
    numbers = isinstance(found, list) and all(type(each) in (int, float) and abs(each) < 1e300 for each in found)
    if not numbers or not found or (count is not None and len(found) != count):
        wanted = "numbers" if count is None else f"{count} numbers"
        raise FormatError(f"what the run has fitted is damaged: {name} are not {wanted}")
    return np.array(found, np.float64)


def fitted_classes(state: Mapping[str, Any], name: str) -> npt.NDArray[np.int64]:
    """Ascending whole numbers of a saved state, int64.

    Raises:
        FormatError: the state holds something else.
    """
    found = state.get(name)
    whole = isinstance(found, list) and all(type(each) is int and abs(each) < 2**62 for each in found)
    if not whole or not found or sorted(set(found)) != found:
        raise FormatError(f"what the run has fitted is damaged: {name} are not ascending whole numbers")
    return np.array(found, np.int64)


def fitted_integer(state: Mapping[str, Any], name: str) -> int:
    """A whole number of a saved state, such as a seed: at least 0.

    Raises:
        FormatError: the state holds something else.
    """
    found = state.get(name)
    if type(found) is not int or not 0 <= found < 2**63:
        raise FormatError(f"what the run has fitted is damaged: {name} is not a whole number")
    return found
