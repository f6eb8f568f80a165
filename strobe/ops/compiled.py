"""Loops over arrays, compiled when they are first called and kept on disk for the next time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """The same function as machine code that lets other threads run beside it."""
    made: Function = numba.njit(nogil=True, cache=True)(function)
    return made
