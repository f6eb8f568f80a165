"""Sorted runs of what arrives: a few of them, so that one more does not mean sorting everything again."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import TypeVar

Run = TypeVar("Run", bound=Sized)


def with_one_more(runs: tuple[Run, ...], new: Run, join: Callable[[Run, Run], Run]) -> tuple[Run, ...]:
    """Runs and the next, joined with those before it that are not more than twice as long.

    Each run that is left is less than half as long as the one before it: there are at most log2(items) of them, and an
    item is joined about log(items) times.
    """
    *before, last = *runs, new
    while before and len(before[-1]) <= 2 * len(last):
        last = join(before.pop(), last)
    return (*before, last)
