"""Loops over arrays, compiled when they are first called and kept on disk, where they can be, for the next time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """The same function as machine code that lets other threads run beside it."""
    try:
        return cast(Function, numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:  # neither the package's folder nor the user's can be written to
        return cast(Function, numba.njit(nogil=True)(function))
