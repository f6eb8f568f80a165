from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import pytest

from strobe.ops.runtime.njit import cached_njit


def doubled(value: int) -> int:
    return 2 * value


def test_a_compiled_function_gives_the_same() -> None:
    assert cached_njit(doubled)(21) == doubled(21) == 42


def test_what_cannot_be_kept_on_disk_is_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that may write nowhere."""
    njit: Callable[..., Any] = numba.njit

    def no_place(**options: Any) -> Any:
        if options.get("cache"):
            raise RuntimeError("cannot cache function 'doubled': no locator available")
        return njit(**options)

    monkeypatch.setattr(numba, "njit", no_place)
    assert cached_njit(doubled)(21) == 42
