"""Numba functions that import numba and compile on their first call, with the machine code cached on disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

SMALL = 1 << 14
"""Entries below which functions that have an equal form in numpy use it: most small graphs then never load numba, which
takes half a second and 80 MiB."""

_lock = threading.RLock()


def cached_njit(function: Function) -> Function:
    """Compile ``function`` with ``numba.njit(nogil=True, cache=True)`` when it is first called.

    The module of the function imports without numba, which takes about half a second to load.
    """
    return cast(Function, _LazyDispatcher(function))


class _LazyDispatcher:
    def __init__(self, function: Callable[..., Any]) -> None:
        self.py_func = function
        self._dispatcher: Any = None
        update_wrapper(self, function)

    def __call__(self, *args: Any) -> Any:
        return (self._dispatcher or self.dispatcher())(*args)

    def dispatcher(self) -> Any:
        """The numba dispatcher. Compiled functions that it calls must be dispatchers too, so they are replaced."""
        with _lock:
            if self._dispatcher is None:
                names = self.py_func.__globals__
                for name in self.py_func.__code__.co_names:
                    if isinstance(names.get(name), _LazyDispatcher):
                        names[name] = names[name].dispatcher()
                self._dispatcher = _compile(self.py_func)
            return self._dispatcher


def _compile(function: Callable[..., Any]) -> Any:
    import numba

    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # neither the package's folder nor the user's cache can be written to
        return numba.njit(nogil=True)(function)
