from __future__ import annotations

import json

import pytest

from strobe.batching import Windows
from strobe.errors import OptionError, UnknownNameError
from strobe.exchange import Exchange, Halo, Nothing, Relay, Shuffle
from strobe.placement import TimeBlocks
from strobe.registry import AXES, make
from strobe.strategy import Strategy

CHOICES = [(axis, choice) for axis, choices in AXES.items() for choice in choices.values()]


@pytest.mark.parametrize(("axis", "choice"), CHOICES, ids=lambda value: getattr(value, "name", value))
def test_every_choice_is_made_from_its_name_and_survives_json(axis: str, choice: type[Strategy]) -> None:
    made = make(axis, choice.name)
    assert type(made) is choice
    assert make(axis, json.loads(json.dumps(made.to_json()))) == made


@pytest.mark.parametrize(("axis", "choice"), CHOICES, ids=lambda value: getattr(value, "name", value))
def test_every_choice_says_what_it_is(axis: str, choice: type[Strategy]) -> None:
    assert choice.__doc__
    assert not choice.__doc__.startswith(choice.__name__ + "(")  # what a dataclass says without one
    assert str(choice()).startswith(choice.name)


def test_fields_are_given_with_the_name() -> None:
    assert make("batching", {"name": "windows", "size": 3}) == Windows(size=3)
    assert make("placement", {"name": "time-blocks", "parts": None}) == TimeBlocks()


def test_an_exchange_is_made_of_both_stages() -> None:
    exchange = make("exchange", {"structure": "none", "time": {"name": "relay", "groups": 4}})
    assert exchange == Exchange(structure=Nothing(), time=Relay(groups=4))
    assert make("exchange", exchange.to_json()) == exchange
    assert make("structure", "halo") == Halo()
    assert make("time", "shuffle") == Shuffle()


@pytest.mark.parametrize("value", ["halo", {"structure": "halo"}, {"structure": "halo", "time": "none", "more": 1}])
def test_half_an_exchange_is_refused(value: object) -> None:
    with pytest.raises(OptionError, match="one for the structure and one for the time stage"):
        make("exchange", value)


@pytest.mark.parametrize(
    ("axis", "value", "said"),
    [
        ("placment", "hash", "no axis named 'placment'; did you mean 'placement'"),
        ("placement", "metsi", "no placement named 'metsi'; did you mean 'metis'"),
        ("time", "relais", "no time choice named 'relais'; did you mean 'relay'"),
        ("placement", {"parts": 2}, "no placement named None"),
        ("batching", {"name": "windows", "sise": 2}, "no option of batching windows named 'sise'; did you mean 'size'"),
    ],
)
def test_a_name_that_is_not_there_is_refused_with_the_nearest(axis: str, value: object, said: str) -> None:
    with pytest.raises(UnknownNameError) as error:
        make(axis, value)
    assert said in str(error.value)


def test_a_value_of_another_kind_is_refused() -> None:
    with pytest.raises(OptionError, match="size of batching windows must be a whole number, not 'many'"):
        make("batching", {"name": "windows", "size": "many"})
    with pytest.raises(OptionError, match=r"must be a whole number, not 2\.5"):
        Windows(size=2.5)  # type: ignore[arg-type]
