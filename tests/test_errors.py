from __future__ import annotations

import pytest

from strobe import errors
from strobe.errors import MissingPackageError, StrobeError, UnknownNameError


def test_every_error_is_a_strobe_error() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) > 5
    assert all(issubclass(kind, StrobeError) for kind in kinds)


def test_an_unknown_name_comes_with_the_nearest_one() -> None:
    error = UnknownNameError("column", "tiem", ["time", "source", "weight"])
    assert str(error) == "no column named 'tiem'; did you mean 'time'? Known: source, time, weight."


def test_a_name_near_to_none_gets_no_guess() -> None:
    assert str(UnknownNameError("column", "zzz", ["b", "a"])) == "no column named 'zzz'. Known: a, b."


@pytest.mark.parametrize("given", [7, None, 1.5])
def test_name_that_is_no_text_is_shown_as_repr(given: object) -> None:
    assert str(UnknownNameError("node", given, [])) == f"no node named {given!r}. Known: none."


def test_a_long_list_of_known_names_is_cut() -> None:
    text = str(UnknownNameError("node", "?", [f"n{i:03}" for i in range(500)]))
    assert text.endswith("n018, n019, ….")
    assert "n020" not in text


def test_a_missing_package_says_how_to_get_it() -> None:
    assert str(MissingPackageError("duckdb", "ingesting tables")) == (
        "ingesting tables needs the package 'duckdb': pip install duckdb"
    )
