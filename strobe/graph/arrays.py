"""Conversion of user-supplied arrays to the dtypes of a graph, with errors that name the array."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from strobe.errors import InputError

Array = npt.NDArray[Any]

_INT64_MAX = np.iinfo(np.int64).max


class RowType(NamedTuple):
    """Shape and dtype of the feature rows or labels of a graph; ``dtype`` is None while there is no row."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None

    def empty(self) -> Array:
        return np.empty((0, *self.shape), np.float32 if self.dtype is None else self.dtype)


def read_only(array: Array) -> Array:
    """Return a read-only view."""
    view = array.view()
    view.flags.writeable = False
    return view


def is_mapped(array: Array | None) -> bool:
    """Return whether an array, or the array it is a view of, is memory-mapped."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False


def as_array(values: npt.ArrayLike, what: str) -> Array:
    """Convert anything numpy can read to an array in native byte order."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, tensors numpy has no type for
        raise InputError(f"{what} cannot be read as an array: {error}") from error
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def as_integers(values: npt.ArrayLike, what: str) -> Array:
    """Convert to signed integers of any shape; an empty array may have any dtype."""
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
    """Convert to node ids, [n]."""
    array = as_integers(values, what)
    if array.ndim != 1:
        raise InputError(f"{what} must be a one-dimensional array, not of shape {array.shape}")
    return array


def as_weights(values: npt.ArrayLike, what: str) -> Array:
    """Convert to finite edge weights of any shape, float32 (float64 stays)."""
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
    """Convert to feature rows [n, F], float32 (float64 stays); a vector becomes one column."""
    array = as_array(values, what)
    if array.dtype.kind not in "biuf" or array.ndim not in (1, 2):
        raise InputError(f"{what} must be rows of numbers, not {array.dtype} of shape {array.shape}")
    rows = array if array.ndim == 2 else array[:, None]
    return rows.astype(_float_type(rows), copy=False)


def as_labels(values: npt.ArrayLike, what: str = "labels") -> Array:
    """Convert to labels [n] or [n, K]: int64 classes or float targets."""
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
