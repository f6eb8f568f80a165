from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass, fields
from typing import ClassVar, get_args

import pytest

from strobe.errors import OptionError, StrobeError
from strobe.registry import AXES, make
from strobe.strategy import Fact, Need, Strategy


@dataclass(frozen=True, kw_only=True)
class Sieve(Strategy):
    """A choice with an option of every sort."""

    name: ClassVar[str] = "sieve"
    size: int = 3
    share: float = 0.5
    wet: bool = False
    limit: int | None = None


def every_choice() -> Iterator[tuple[str, type[Strategy]]]:
    """(axis, class) of all registered strategies."""
    for axis, choices in AXES.items():
        for choice in choices.values():
            assert issubclass(choice, Strategy)
            yield axis, choice


EVERYTHING = list(every_choice())


def test_a_choice_is_a_value() -> None:
    assert Sieve(size=4) == Sieve(size=4) != Sieve()
    assert len({Sieve(), Sieve(size=3), Sieve(size=4)}) == 2
    with pytest.raises(FrozenInstanceError):
        Sieve().size = 4  # type: ignore[misc]
    with pytest.raises(TypeError):
        Sieve(4)  # type: ignore[call-arg]


def test_its_json_is_its_name_and_all_options() -> None:
    assert Sieve(share=0.25).to_json() == {"name": "sieve", "size": 3, "share": 0.25, "wet": False, "limit": None}


def test_it_prints_its_options_where_it_has_any_that_say_something() -> None:
    assert str(Sieve(wet=True)) == "sieve (size 3, share 0.5, wet True)"
    assert str(Sieve(limit=0)) == "sieve (size 3, share 0.5, wet False, limit 0)"

    @dataclass(frozen=True, kw_only=True)
    class Plain(Strategy):
        name: ClassVar[str] = "plain"

    assert str(Plain()) == "plain"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"size": "3"}, "size of sieve must be a whole number, not '3'"),
        ({"size": 2.5}, "size of sieve must be a whole number, not 2.5"),
        ({"size": True}, "size of sieve must be a whole number, not True"),
        ({"share": float("nan")}, "share of sieve must be a number, not nan"),
        ({"wet": 1}, "wet of sieve must be true or false, not 1"),
        ({"limit": "none"}, "limit of sieve must be a whole number or none, not 'none'"),
    ],
)
def test_options_of_another_kind_are_refused(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(OptionError) as error:
        Sieve(**wrong)  # type: ignore[arg-type]
    assert str(error.value) == words
    assert isinstance(error.value, StrobeError)


def test_a_choice_is_exact_needs_nothing_and_gives_nothing_unless_it_says_so() -> None:
    assert Sieve.exact
    assert (Sieve().needs, Sieve().gives) == ((), ())


@pytest.mark.parametrize(("axis", "choice"), EVERYTHING, ids=lambda value: getattr(value, "name", value))
def test_every_registered_choice_comes_back_from_json_and_says_what_it_does(axis: str, choice: type[Strategy]) -> None:
    made = choice()
    assert make(axis, json.loads(json.dumps(made.to_json()))) == made
    assert str(made).startswith(choice.name)
    assert (choice.__doc__ or "").strip().endswith("."), "its docstring is a sentence"
    assert all(field.kw_only for field in fields(choice))
    facts = get_args(Fact)
    assert set(made.gives) <= set(facts)
    for need in made.needs:
        assert isinstance(need, Need)
        assert need.fact in facts
        assert need.why
        assert need.fix
