from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from strobe.exchange import Exchange, Halo, Nothing, Relay, Shuffle, Stay
from strobe.exchange.base import Columns, apart, encode, side_by_side
from strobe.exchange.none import Staying
from strobe.ops.sequences import Sequences

BOTH = Exchange(structure=Halo(), time=Relay(groups=3))


class Told:
    """An encoder that tells what it was given."""

    def encode(self, x: Any, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        return torch.zeros(sequences.num_cells, 1), (x, state)


def columns(*widths: int) -> Columns:
    return tuple(torch.arange(4.0 * width).reshape(4, width) + 100 * k for k, width in enumerate(widths))


def test_an_encoder_gets_one_input_as_it_is_and_several_as_a_tuple() -> None:
    sequences = Sequences.of([torch.arange(4).numpy()], 4)
    (one,), two = columns(3), columns(2, 1)
    assert encode(Told(), (one,), None, sequences)[1] == (one, None)
    assert encode(Told(), two, "state", sequences)[1] == (two, "state")


def test_inputs_side_by_side_come_apart_again() -> None:
    for widths in ([3], [2, 1], [1, 3, 2]):
        x = columns(*widths)
        rows = side_by_side(x)
        assert rows.shape == (4, sum(widths))
        assert rows[1].tolist() == [value for each in x for value in each[1].tolist()]
        others = torch.flip(rows, [0])[:3]
        parts = apart(others, x)
        assert [part.tolist() for part in parts] == [torch.flip(each, [0])[:3].tolist() for each in x]


def test_where_sequences_are_whole_an_encoder_runs_as_it_is() -> None:
    sequences = Sequences.of([torch.arange(4).numpy()], 4)
    x = columns(2, 1)
    out, state, tokens = Staying(sequences).run(Told(), x, 7)
    assert (out.shape, state, tokens) == ((4, 1), (x, 7), [])


def test_an_exchange_is_both_its_choices() -> None:
    assert BOTH.exact
    assert BOTH.to_json() == {"structure": {"name": "halo"}, "time": {"name": "relay", "groups": 3}}
    assert str(BOTH) == "structure halo, time relay (groups 3)"
    assert Exchange(structure=Halo(), time=Relay(groups=3)) == BOTH != Exchange(structure=Halo(), time=Shuffle())


def test_an_exchange_needs_what_either_choice_needs() -> None:
    assert (BOTH.needs, BOTH.gives) == ((), ("fresh rows",))
    nothing = Exchange(structure=Nothing(), time=Stay())
    assert [need.fact for need in nothing.needs] == ["whole snapshots", "whole sequences"]
    assert [need.fact for need in Exchange(structure=Nothing(), time=Relay()).needs] == ["whole snapshots"]
    assert [need.fact for need in Exchange(structure=Halo(), time=Stay()).needs] == ["whole sequences"]


def test_an_exchange_is_exact_only_if_both_choices_are() -> None:
    class Roughly(Halo):
        exact = False

    class Late(Relay):
        exact = False

    assert not Exchange(structure=Roughly(), time=Relay()).exact
    assert not Exchange(structure=Halo(), time=Late()).exact
