from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from typing import Any, ClassVar, get_args

import pytest

from strobe.errors import OptionError
from strobe.strategy import FACTS, Fact, Strategy


@dataclass(frozen=True, kw_only=True)
class Sieve(Strategy):
    """A strategy with an option of every type."""

    name: ClassVar[str] = "sieve"
    size: int = 3
    share: float = 0.5
    wet: bool = False
    limit: int | None = None


def test_strategy_is_an_immutable_keyword_only_value() -> None:
    assert Sieve(size=4) == Sieve(size=4) != Sieve()
    assert len({Sieve(), Sieve(size=3), Sieve(size=4)}) == 2
    with pytest.raises(FrozenInstanceError):
        Sieve().size = 4  # type: ignore[misc]
    with pytest.raises(TypeError):
        Sieve(4)  # type: ignore[call-arg]
    assert Sieve(share=0.25).to_json() == {"name": "sieve", "size": 3, "share": 0.25, "wet": False, "limit": None}


def test_str_shows_options_that_are_not_none() -> None:
    assert str(Sieve(wet=True)) == "sieve (size 3, share 0.5, wet True)"
    assert str(Sieve(limit=0)) == "sieve (size 3, share 0.5, wet False, limit 0)"

    @dataclass(frozen=True, kw_only=True)
    class Plain(Strategy):
        name: ClassVar[str] = "plain"

    assert str(Plain()) == "plain"


@pytest.mark.parametrize(
    "wrong", [{"size": "3"}, {"size": 2.5}, {"size": True}, {"share": float("nan")}, {"wet": 1}, {"limit": "none"}]
)
def test_options_of_another_type_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=f"{next(iter(wrong))} of sieve must be"):
        Sieve(**wrong)


def test_strategy_is_exact_without_needs_and_facts_by_default() -> None:
    assert Sieve.exact
    assert (Sieve().needs, Sieve().gives) == ((), ())


def test_every_fact_has_a_meaning() -> None:
    assert set(FACTS) == set(get_args(Fact))
    assert not FACTS["chunks"].holds_on_one_rank
