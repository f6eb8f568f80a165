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
from strobe.registry import AXES, make_strategy
from strobe.strategy import FACTS, Strategy

STRATEGIES = [(axis, strategy) for axis, strategies in AXES.items() for strategy in strategies.values()]


@pytest.mark.parametrize(("axis", "strategy"), STRATEGIES, ids=lambda value: getattr(value, "name", value))
def test_strategy_is_made_from_its_name_survives_json_and_is_documented(axis: str, strategy: type[Strategy]) -> None:
    made = make_strategy(axis, strategy.name)
    assert type(made) is strategy
    assert make_strategy(axis, json.loads(json.dumps(made.to_json()))) == made
    assert str(made).startswith(strategy.name)
    doc = strategy.__doc__ or ""
    assert doc.strip().endswith(".")
    assert not doc.startswith(strategy.__name__ + "(")  # the default of a dataclass
    assert all(field.kw_only for field in fields(strategy))
    assert set(made.gives) <= set(FACTS)
    assert all(need.fact in FACTS and need.why and need.fix for need in made.needs)


@pytest.mark.parametrize("axis", ["store", "placement", "batching", "exchange", "schedule", "sync"])
def test_package_exports_its_strategies_by_class_name(axis: str) -> None:
    package = import_module(f"strobe.{axis}")
    stages = ("structure", "time") if axis == "exchange" else (axis,)
    for strategy in (strategy for stage in stages for strategy in AXES[stage].values()):
        assert getattr(package, strategy.__name__) is strategy
        assert strategy.__name__ in package.__all__
    with pytest.raises(AttributeError, match="Nothing"):
        _ = package.Nothing


def test_a_plan_loads_only_the_strategies_that_it_names_and_numba_is_loaded_when_it_is_used() -> None:
    code = (
        "import sys; from strobe.plan import Plan; Plan.from_json({'placement': 'hash'}); "
        "print([m for m in ('placement.online', 'batching.sampled', 'sync.average') if f'strobe.{m}' in sys.modules]); "
        "import strobe.placement as p, strobe.schedule as s; p.Chunks(), s.Greedy(), s.Optimal(); "
        "print('numba' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\nFalse\n"


def test_exchange_is_made_of_two_stages() -> None:
    assert make_strategy("batching", {"name": "windows", "size": 3}) == Windows(size=3)
    exchange = make_strategy("exchange", {"structure": "none", "time": {"name": "relay", "pipeline_groups": 4}})
    assert exchange == Exchange(structure=NoExchange(), time=Relay(pipeline_groups=4))
    assert make_strategy("exchange", exchange.to_json()) == exchange
    assert make_strategy("structure", "halo") == Halo()
    assert make_strategy("time", "shuffle") == Shuffle()


@pytest.mark.parametrize(
    ("axis", "value", "kind", "word"),
    [
        ("placment", "hash", UnknownNameError, "'placement'"),
        ("placement", "metsi", UnknownNameError, "'metis'"),
        ("time", "relais", UnknownNameError, "'relay'"),
        ("placement", {"parts": 2}, UnknownNameError, "None"),
        ("batching", {"name": "windows", "sise": 2}, UnknownNameError, "'size'"),
        ("batching", {"name": "windows", "size": "many"}, OptionError, "'many'"),
        ("exchange", "halo", OptionError, "time stage"),
        ("exchange", {"structure": "halo"}, OptionError, "time stage"),
        ("exchange", {"structure": "halo", "time": "none", "more": 1}, OptionError, "time stage"),
    ],
)
def test_invalid_strategy_is_refused_with_the_nearest_name(axis: str, value: object, kind: type, word: str) -> None:
    with pytest.raises(kind, match=word):
        make_strategy(axis, value)
