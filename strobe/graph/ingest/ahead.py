"""Working ahead: the next item is made in a thread while the current one is used."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

Item = TypeVar("Item")

_END: Final = object()


def ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items in the same order. What goes wrong in the thread goes wrong here."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, items, _END)
        while (item := coming.result()) is not _END:
            coming = thread.submit(next, items, _END)
            yield item  # type: ignore[misc]
