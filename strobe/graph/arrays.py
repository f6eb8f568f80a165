"""Arrays as users give them: brought to the types a graph keeps, or refused with the reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from strobe.errors import InputError

Array = npt.NDArray[Any]

_INT64_MAX = np.iinfo(np.int64).max


def read_only(array: Array) -> Array:
    """A view that cannot be written through."""
    view = array.view()
    view.flags.writeable = False
    return view


def is_mapped(array: Array | None) -> bool:
    """Whether an array, or what it is a view of, is in a file and read page by page."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False


def as_array(values: npt.ArrayLike, what: str) -> Array:
    """Anything numpy can read, in native byte order."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, tensors numpy has no type for
        raise InputError(f"{what} cannot be read as an array: {error}") from error
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def as_integers(values: npt.ArrayLike, what: str) -> Array:
    """Signed integers of any shape; an empty array may come with any type, as [] does."""
    array = as_array(values, what)
    if array.size == 0:
        return np.zeros(array.shape, np.int64)
    if array.dtype.kind not in "iu":
        raise InputError(f"{what} must be integers, not {array.dtype} (the first is {array.ravel()[:1].tolist()[0]!r})")
    if array.dtype != np.uint64:
        return array
    if int(array.max()) > _INT64_MAX:
        raise InputError(f"{what} contain {array.max()}, which is too large for a node")
    return array.astype(np.int64)


def as_ids(values: npt.ArrayLike, what: str) -> Array:
    """Node ids, [n]."""
    array = as_integers(values, what)
    if array.ndim != 1:
        raise InputError(f"{what} must be a one-dimensional array, not of shape {array.shape}")
    return array


def as_weights(values: npt.ArrayLike, what: str) -> Array:
    """Finite edge weights as float32 (float64 stays), of any shape."""
    array = as_array(values, what)
    if array.dtype.kind not in "biuf":
        first = f" (the first is {array.ravel()[:1].tolist()[0]!r})" if array.size else ""
        raise InputError(f"{what} must be numbers, not {array.dtype}{first}")
    finite = np.isfinite(array)
    if not bool(finite.all()):
        wrong = int(np.argmin(finite))
        raise InputError(f"{what} must be finite, number {wrong} is {array.flat[wrong]}")
    return array.astype(_float_type(array), copy=False)


def as_features(values: npt.ArrayLike, what: str = "features") -> Array:
    """Rows of features as float32 (float64 stays), [n, F]; one number per row becomes one column."""
    array = as_array(values, what)
    if array.dtype.kind not in "biuf" or array.ndim not in (1, 2):
        raise InputError(f"{what} must be rows of numbers, not {array.dtype} of shape {array.shape}")
    rows = array if array.ndim == 2 else array[:, None]
    return rows.astype(_float_type(rows), copy=False)


def as_labels(values: npt.ArrayLike, what: str = "labels") -> Array:
    """Labels as int64 classes or float targets, [n] or [n, K]."""
    array = as_array(values, what)
    if array.dtype.kind not in "biuf" or array.ndim not in (1, 2):
        raise InputError(f"{what} must be one number or one row of numbers each, not {array.dtype} {array.shape}")
    if array.dtype.kind == "f":
        return array.astype(_float_type(array), copy=False)
    if array.dtype == np.uint64 and array.size and int(array.max()) > _INT64_MAX:
        raise InputError(f"{what} contain {array.max()}, which is too large")
    return array.astype(np.int64, copy=False)


def _float_type(array: Array) -> type[np.float32] | type[np.float64]:
    return np.float64 if array.dtype.kind == "f" and array.dtype.itemsize >= 8 else np.float32
