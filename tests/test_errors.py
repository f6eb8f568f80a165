from __future__ import annotations

import pytest

from strobe import errors
from strobe.errors import MissingPackageError, StrobeError, UnknownNameError


def test_every_error_is_a_strobe_error() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) > 5
    assert all(issubclass(kind, StrobeError) for kind in kinds)


@pytest.mark.parametrize(
    ("name", "known", "text"),
    [
        ("tiem", ["time", "source"], "no column named 'tiem'; did you mean 'time'? Known: source, time."),
        ("zzz", ["b", "a"], "no column named 'zzz'. Known: a, b."),
        (7, [], "no column named 7. Known: none."),
        ("?", [f"n{i:03}" for i in range(500)], f"Known: {', '.join(f'n{i:03}' for i in range(20))}, …."),
    ],
)
def test_an_unknown_name_comes_with_the_nearest_and_some_known_ones(name: object, known: list[str], text: str) -> None:
    assert str(UnknownNameError("column", name, known)).endswith(text)


def test_a_missing_package_says_how_to_get_it() -> None:
    assert "pip install duckdb" in str(MissingPackageError("duckdb", "ingesting tables"))
