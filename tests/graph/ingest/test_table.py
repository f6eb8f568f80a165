"""Prefetching of batches."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from strobe.graph.ingest.table import prefetch


def test_items_come_in_order() -> None:
    assert list(prefetch(iter(range(100)))) == list(range(100))
    assert list(prefetch(iter([]))) == []


def test_the_next_item_is_made_while_the_current_one_is_used() -> None:
    made = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        made.set()
        yield 2

    for item in prefetch(items()):
        assert item == 2 or made.wait(timeout=10)


def test_exceptions_in_the_thread_are_raised_in_the_caller() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        list(prefetch(items()))


def test_an_early_end_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    items = prefetch(iter(range(100)))
    assert next(items) == 0
    items.close()  # type: ignore[attr-defined]
    assert set(threading.enumerate()) <= before
