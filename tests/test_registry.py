from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from importlib import import_module

import pytest

from strobe.batching import Windows
from strobe.errors import OptionError, UnknownNameError
from strobe.exchange import Exchange, Halo, NoExchange, Relay, Shuffle
from strobe.placement import TimeBlocks
from strobe.registry import AXES, make_strategy
from strobe.strategy import FACTS, Strategy

STRATEGIES = [(axis, strategy) for axis, strategies in AXES.items() for strategy in strategies.values()]


@pytest.mark.parametrize(("axis", "strategy"), STRATEGIES, ids=lambda value: getattr(value, "name", value))
def test_strategy_is_made_from_its_name_and_survives_json(axis: str, strategy: type[Strategy]) -> None:
    made = make_strategy(axis, strategy.name)
    assert type(made) is strategy
    assert make_strategy(axis, json.loads(json.dumps(made.to_json()))) == made
    assert str(made).startswith(strategy.name)


@pytest.mark.parametrize(("axis", "strategy"), STRATEGIES, ids=lambda value: getattr(value, "name", value))
def test_strategy_is_documented_and_names_known_facts(axis: str, strategy: type[Strategy]) -> None:
    doc = strategy.__doc__ or ""
    assert doc.strip().endswith(".")
    assert not doc.startswith(strategy.__name__ + "(")  # the default of a dataclass
    assert all(field.kw_only for field in fields(strategy))
    assert set(strategy().gives) <= set(FACTS)
    for need in strategy().needs:
        assert need.fact in FACTS
        assert need.why
        assert need.fix


@pytest.mark.parametrize("axis", ["store", "placement", "batching", "exchange", "schedule", "sync"])
def test_package_exports_its_strategies_by_class_name(axis: str) -> None:
    package = import_module(f"strobe.{axis}")
    stages = ("structure", "time") if axis == "exchange" else (axis,)
    for strategy in (strategy for stage in stages for strategy in AXES[stage].values()):
        assert getattr(package, strategy.__name__) is strategy
        assert strategy.__name__ in package.__all__
    with pytest.raises(AttributeError, match="Nothing"):
        _ = package.Nothing


def test_a_plan_loads_only_the_strategies_that_it_names() -> None:
    code = (
        "import sys; from strobe.plan import Plan; Plan.from_json({'placement': 'hash'}); "
        "print([m for m in ('placement.online', 'batching.hybrid', 'sync.average') if f'strobe.{m}' in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_make_strategy_takes_fields_with_the_name() -> None:
    assert make_strategy("batching", {"name": "windows", "size": 3}) == Windows(size=3)
    assert make_strategy("placement", {"name": "time-blocks", "parts": None}) == TimeBlocks()


def test_exchange_is_made_of_two_stages() -> None:
    exchange = make_strategy("exchange", {"structure": "none", "time": {"name": "relay", "pipeline_groups": 4}})
    assert exchange == Exchange(structure=NoExchange(), time=Relay(pipeline_groups=4))
    assert make_strategy("exchange", exchange.to_json()) == exchange
    assert make_strategy("structure", "halo") == Halo()
    assert make_strategy("time", "shuffle") == Shuffle()


@pytest.mark.parametrize("value", ["halo", {"structure": "halo"}, {"structure": "halo", "time": "none", "more": 1}])
def test_exchange_without_both_stages_is_refused(value: object) -> None:
    with pytest.raises(OptionError, match="one for the structure and one for the time stage"):
        make_strategy("exchange", value)


@pytest.mark.parametrize(
    ("axis", "value", "message"),
    [
        ("placment", "hash", "no axis named 'placment'; did you mean 'placement'"),
        ("placement", "metsi", "no placement named 'metsi'; did you mean 'metis'"),
        ("time", "relais", "no time choice named 'relais'; did you mean 'relay'"),
        ("placement", {"parts": 2}, "no placement named None"),
        ("batching", {"name": "windows", "sise": 2}, "no option of batching windows named 'sise'; did you mean 'size'"),
    ],
)
def test_unknown_name_error_suggests_the_nearest(axis: str, value: object, message: str) -> None:
    with pytest.raises(UnknownNameError) as error:
        make_strategy(axis, value)
    assert message in str(error.value)


def test_value_of_another_type_is_refused() -> None:
    with pytest.raises(OptionError, match="size of batching windows must be a whole number, not 'many'"):
        make_strategy("batching", {"name": "windows", "size": "many"})
    with pytest.raises(OptionError, match=r"must be a whole number, not 2\.5"):
        Windows(size=2.5)  # type: ignore[arg-type]
