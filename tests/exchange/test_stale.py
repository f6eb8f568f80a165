from __future__ import annotations

import json
import math
from typing import Any

import pytest

from strobe.cli.plan_options import vary
from strobe.comm import Alone
from strobe.engine.summary import choice_in_short, choices
from strobe.errors import OptionError, UnknownNameError
from strobe.exchange import Exchange, Halo, Nothing, Relay, Shuffle, Stale, StaleTime, Stay
from strobe.exchange.sparing import Sparing
from strobe.exchange.stale import WhenMoved
from strobe.models.time import Attention, Recurrent
from strobe.plan import Plan
from strobe.registry import make


@pytest.mark.parametrize("last", [2.0, 1.5, 1.0, 0.5, 0.0, 3.0])
def test_theta_follows_the_loss_as_equation_6_prints_it_or_as_the_text_describes_it(last: float) -> None:
    fallen = (2.0 - last) / 2.0
    assert Stale(form="printed").part_of_furthest(2.0, last) == pytest.approx(1 / (1 + math.exp(fallen)))
    assert Stale(form="described").part_of_furthest(2.0, last) == pytest.approx(1 / (1 + math.exp(-fallen)))


def test_theta_shrinks_as_printed_and_grows_as_described_while_the_loss_falls() -> None:
    losses = [1.0, 0.8, 0.5, 0.1, 0.0]
    printed, described = (
        [Stale(form=form).part_of_furthest(1.0, loss) for loss in losses] for form in ("printed", "described")
    )
    assert printed == sorted(printed, reverse=True)
    assert described == sorted(described)
    assert printed[0] == described[0] == 0.5
    assert (printed[-1], described[-1]) == pytest.approx((0.26894, 0.73106), abs=1e-5)


def test_losses_that_are_zero_negative_huge_or_not_there_yet_give_a_threshold_all_the_same() -> None:
    for form in ("printed", "described"):
        choice = Stale(form=form)
        assert choice.part_of_furthest(None, None) == 0.5
        assert choice.part_of_furthest(0.0, 3.0) == 0.5
        assert 0 <= choice.part_of_furthest(1e-300, 1e300) <= 1
    # A negative loss that falls further is a loss that falls.
    assert Stale(form="printed").part_of_furthest(-1.0, -2.0) == pytest.approx(1 / (1 + math.e))
    assert Stale(form="described").part_of_furthest(1e-300, -1e300) == pytest.approx(1)
    assert Stale(form="printed").part_of_furthest(1e-300, -1e300) == pytest.approx(0)


def test_a_share_is_the_share_whatever_the_loss() -> None:
    assert {StaleTime(share=0.3).part_of_furthest(*losses) for losses in ((None, None), (2.0, 1.0))} == {0.3}


@pytest.mark.parametrize("kind", [Stale, StaleTime])
def test_it_is_exact_where_every_row_is_sent_and_nowhere_else(kind: type[Stale | StaleTime]) -> None:
    assert kind(share=0).exact
    assert kind(share=0.0).exact
    assert not kind(share=0.1).exact
    assert not kind().exact
    assert kind.exact is False, "the class as such, for lists of choices"
    exact = Exchange(structure=Stale(share=0), time=StaleTime(share=0))
    assert Plan(exchange=exact).exact
    assert not Plan(exchange=Exchange(structure=Stale(share=0), time=StaleTime())).exact


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"share": -0.1}, "at least 0, which sends every row, or none, which adapts it to the loss, not -0.1"),
        ({"share": float("nan")}, "share of stale must be a number or none, not nan"),
        ({"share": "0.3"}, "share of stale must be a number or none, not '0.3'"),
        ({"form": "typed"}, "form of stale must be described or printed, not 'typed'"),
        ({"fresh": Shuffle()}, "fresh of stale must be another exchange of the same stage, not shuffle"),
        ({"fresh": Stale()}, "fresh of stale must be another exchange of the same stage, not stale"),
        ({"fresh": "halo"}, "fresh of stale must be another exchange of the same stage, not halo"),
    ],
)
def test_bad_options_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError) as error:
        Stale(**wrong)
    assert words in str(error.value)


def test_it_needs_what_the_exchange_inside_needs() -> None:
    assert Stale().needs == StaleTime().needs == ()
    assert [need.fact for need in Stale(fresh=Nothing()).needs] == ["whole snapshots"]
    assert [need.fact for need in StaleTime(fresh=Stay()).needs] == ["whole sequences"]


def test_encoders_that_relay_are_relayed_and_the_others_shuffled() -> None:
    attention = Attention(4, 2)
    recurrent = Recurrent.__new__(Recurrent)  # only asked whether it relays
    assert StaleTime(fresh=Relay(groups=3)).fitting(recurrent) == Relay(groups=3)
    assert StaleTime().fitting(attention) == Shuffle()
    assert StaleTime(fresh=Shuffle()).fitting(recurrent) == Shuffle()


def test_it_sends_a_courier_who_spares_rows() -> None:
    assert isinstance(Stale().courier(Alone()), Sparing)
    assert isinstance(StaleTime().courier(Alone()), Sparing)


NESTED = [
    Exchange(structure=Stale(share=0.3), time=StaleTime(share=0.0, fresh=Shuffle())),
    Exchange(structure=Stale(form="printed", fresh=Nothing()), time=StaleTime(fresh=Relay(groups=4), share=1.5)),
    Exchange(structure=Halo(), time=StaleTime()),
]


@pytest.mark.parametrize("exchange", NESTED, ids=str)
def test_choices_within_choices_survive_json_and_the_command_line(exchange: Exchange) -> None:
    plan = Plan(exchange=exchange)
    told = json.loads(json.dumps(plan.to_json()))
    assert Plan.from_json(told) == plan
    texts = {stage: choice_in_short(stage, choices(told)[stage]) for stage in ("structure", "time")}
    assert vary(Plan(), texts).exchange == exchange


@pytest.mark.parametrize(
    ("stage", "text", "choice"),
    [
        ("structure", "stale", Stale()),
        ("structure", "stale:share=0.3", Stale(share=0.3)),
        ("structure", "stale:fresh=halo,share=none,form=printed", Stale(form="printed")),
        ("time", "stale:fresh=relay:groups=4,share=0.5", StaleTime(share=0.5, fresh=Relay(groups=4))),
        ("time", "stale:share=0.5,fresh=[relay:groups=4]", StaleTime(share=0.5, fresh=Relay(groups=4))),
    ],
)
def test_the_command_line_takes_a_choice_within_a_choice(stage: str, text: str, choice: WhenMoved) -> None:
    assert getattr(vary(Plan(), {stage: text}).exchange, stage) == choice


def test_a_name_inside_that_is_not_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="no structure choice named 'hallo'; did you mean 'halo'"):
        make("structure", {"name": "stale", "fresh": "hallo"})
    with pytest.raises(UnknownNameError, match="no time choice named 'shufle'; did you mean 'shuffle'"):
        vary(Plan(), {"time": "stale:fresh=shufle"})
    with pytest.raises(UnknownNameError, match="no option of time relay named 'grups'; did you mean 'groups'"):
        make("time", {"name": "stale", "fresh": {"name": "relay", "grups": 2}})
    with pytest.raises(OptionError, match="not 3"):
        make("structure", {"name": "stale", "fresh": 3})
