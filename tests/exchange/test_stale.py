from __future__ import annotations

import json
import math
from typing import Any

import pytest

from strobe.cli.options.plan import override_choices
from strobe.comm import SingleRankComm
from strobe.errors import OptionError, UnknownNameError
from strobe.exchange import Exchange, Halo, NoExchange, NoTimeExchange, Relay, Shuffle, Stale, StaleTime
from strobe.exchange.stale import StaleExchange, ThresholdExchange
from strobe.models.time import Attention, Recurrent
from strobe.plan import Plan
from strobe.registry import make_strategy
from strobe.report.summary import choices_by_axis, format_choice


@pytest.mark.parametrize("last", [2.0, 1.5, 1.0, 0.5, 0.0, 3.0])
def test_adaptive_threshold_follows_equation_6_with_either_sign(last: float) -> None:
    decrease = (2.0 - last) / 2.0
    assert Stale(adapt="shrink").relative_threshold(2.0, last) == pytest.approx(1 / (1 + math.exp(decrease)))
    assert Stale(adapt="grow").relative_threshold(2.0, last) == pytest.approx(1 / (1 + math.exp(-decrease)))


def test_threshold_is_defined_for_zero_negative_huge_and_missing_losses() -> None:
    for adapt in ("shrink", "grow"):
        exchange = Stale(adapt=adapt)
        assert exchange.relative_threshold(None, None) == 0.5
        assert exchange.relative_threshold(0.0, 3.0) == 0.5
        assert 0 <= exchange.relative_threshold(1e-300, 1e300) <= 1
    assert Stale(adapt="shrink").relative_threshold(-1.0, -2.0) == pytest.approx(1 / (1 + math.e))
    assert Stale(adapt="grow").relative_threshold(1e-300, -1e300) == pytest.approx(1)
    assert Stale(adapt="shrink").relative_threshold(1e-300, -1e300) == pytest.approx(0)


def test_given_threshold_does_not_depend_on_the_loss() -> None:
    assert {StaleTime(threshold=0.3).relative_threshold(*losses) for losses in ((None, None), (2.0, 1.0))} == {0.3}


@pytest.mark.parametrize("kind", [Stale, StaleTime])
def test_stale_is_exact_only_at_threshold_0(kind: type[Stale | StaleTime]) -> None:
    assert kind(threshold=0).exact
    assert kind(threshold=0.0).exact
    assert not kind(threshold=0.1).exact
    assert not kind().exact
    assert kind.exact is False
    exact = Exchange(structure=Stale(threshold=0), time=StaleTime(threshold=0))
    assert Plan(exchange=exact).exact
    assert not Plan(exchange=Exchange(structure=Stale(threshold=0), time=StaleTime())).exact


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"threshold": -0.1}, "threshold of stale .* not -0.1"),
        ({"threshold": float("nan")}, "threshold of stale .* not nan"),
        ({"threshold": "0.3"}, "threshold of stale .* not '0.3'"),
        ({"adapt": "typed"}, "adapt of stale must be grow or shrink"),
        ({"inner": Shuffle()}, "inner of stale .* not shuffle"),
        ({"inner": Stale()}, "inner of stale .* not stale"),
        ({"inner": "halo"}, "inner of stale .* not halo"),
    ],
)
def test_invalid_options_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Stale(**wrong)


def test_stale_has_the_needs_of_its_inner_exchange() -> None:
    assert Stale().needs == StaleTime().needs == ()
    assert [need.fact for need in Stale(inner=NoExchange()).needs] == ["whole snapshots"]
    assert [need.fact for need in StaleTime(inner=NoTimeExchange()).needs] == ["whole sequences"]


def test_stale_time_relays_row_states_and_shuffles_other_encoders() -> None:
    attention = Attention(4, 2)
    recurrent = Recurrent.__new__(Recurrent)
    assert StaleTime(inner=Relay(pipeline_groups=3)).for_encoder(recurrent) == Relay(pipeline_groups=3)
    assert StaleTime().for_encoder(attention) == Shuffle()
    assert StaleTime(inner=Shuffle()).for_encoder(recurrent) == Shuffle()


def test_stale_makes_stale_row_exchanges() -> None:
    assert isinstance(Stale().make_row_exchange(SingleRankComm()), StaleExchange)
    assert isinstance(StaleTime().make_row_exchange(SingleRankComm()), StaleExchange)


NESTED = [
    Exchange(structure=Stale(threshold=0.3), time=StaleTime(threshold=0.0, inner=Shuffle())),
    Exchange(
        structure=Stale(adapt="shrink", inner=NoExchange()),
        time=StaleTime(inner=Relay(pipeline_groups=4), threshold=1.5),
    ),
    Exchange(structure=Halo(), time=StaleTime()),
]


@pytest.mark.parametrize("exchange", NESTED, ids=str)
def test_nested_exchanges_survive_json_and_the_command_line(exchange: Exchange) -> None:
    plan = Plan(exchange=exchange)
    spec = json.loads(json.dumps(plan.to_json()))
    assert Plan.from_json(spec) == plan
    texts = {stage: format_choice(stage, choices_by_axis(spec)[stage]) for stage in ("structure", "time")}
    assert override_choices(Plan(), texts).exchange == exchange


@pytest.mark.parametrize(
    ("stage", "text", "choice"),
    [
        ("structure", "stale", Stale()),
        ("structure", "stale:threshold=0.3", Stale(threshold=0.3)),
        ("structure", "stale:inner=halo,threshold=none,adapt=shrink", Stale(adapt="shrink")),
        (
            "time",
            "stale:inner=relay:pipeline_groups=4,threshold=0.5",
            StaleTime(threshold=0.5, inner=Relay(pipeline_groups=4)),
        ),
        (
            "time",
            "stale:threshold=0.5,inner=[relay:pipeline_groups=4]",
            StaleTime(threshold=0.5, inner=Relay(pipeline_groups=4)),
        ),
    ],
)
def test_command_line_parses_nested_exchanges(stage: str, text: str, choice: ThresholdExchange) -> None:
    assert getattr(override_choices(Plan(), {stage: text}).exchange, stage) == choice


def test_unknown_inner_name_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError, match="'hallo'; did you mean 'halo'"):
        make_strategy("structure", {"name": "stale", "inner": "hallo"})
    with pytest.raises(UnknownNameError, match="'shufle'; did you mean 'shuffle'"):
        override_choices(Plan(), {"time": "stale:inner=shufle"})
    with pytest.raises(UnknownNameError, match="did you mean 'pipeline_groups'"):
        make_strategy("time", {"name": "stale", "inner": {"name": "relay", "pipeline_group": 2}})
    with pytest.raises(OptionError, match="not 3"):
        make_strategy("structure", {"name": "stale", "inner": 3})
