from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from strobe.exchange import Exchange, Halo, NoExchange, NoTimeExchange, Relay, Shuffle
from strobe.exchange.base import TimeInputs, concat_inputs, encode, split_inputs
from strobe.exchange.none import LocalTimeStage
from strobe.ops.time.sequences import Sequences

BOTH = Exchange(structure=Halo(), time=Relay(pipeline_groups=3))


class Recorder:
    """An encoder that returns its arguments as the state."""

    def encode(self, x: Any, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        return torch.zeros(sequences.num_cells, 1), (x, state)


def columns(*widths: int) -> TimeInputs:
    return tuple(torch.arange(4.0 * width).reshape(4, width) + 100 * k for k, width in enumerate(widths))


def test_encoder_is_given_one_input_or_a_tuple_of_several() -> None:
    sequences = Sequences.of([torch.arange(4).numpy()], 4)
    (one,), two = columns(3), columns(2, 1)
    assert encode(Recorder(), (one,), None, sequences)[1] == (one, None)
    assert encode(Recorder(), two, "state", sequences)[1] == (two, "state")


def test_split_inputs_inverts_concat_inputs() -> None:
    for widths in ([3], [2, 1], [1, 3, 2]):
        x = columns(*widths)
        rows = concat_inputs(x)
        assert rows.shape == (4, sum(widths))
        assert rows[1].tolist() == [value for each in x for value in each[1].tolist()]
        others = torch.flip(rows, [0])[:3]
        parts = split_inputs(others, x)
        assert [part.tolist() for part in parts] == [torch.flip(each, [0])[:3].tolist() for each in x]


def test_local_time_stage_runs_the_encoder() -> None:
    sequences = Sequences.of([torch.arange(4).numpy()], 4)
    x = columns(2, 1)
    out, state, tokens = LocalTimeStage(sequences).run(Recorder(), x, 7)
    assert (out.shape, state, tokens) == ((4, 1), (x, 7), [])


def test_exchange_describes_both_strategies() -> None:
    assert BOTH.exact
    assert BOTH.to_json() == {"structure": {"name": "halo"}, "time": {"name": "relay", "pipeline_groups": 3}}
    assert str(BOTH) == "structure halo, time relay (pipeline_groups 3)"
    assert (
        Exchange(structure=Halo(), time=Relay(pipeline_groups=3)) == BOTH != Exchange(structure=Halo(), time=Shuffle())
    )


def test_exchange_has_the_needs_of_both_strategies() -> None:
    assert (BOTH.needs, BOTH.gives) == ((), ("fresh rows",))
    none = Exchange(structure=NoExchange(), time=NoTimeExchange())
    assert [need.fact for need in none.needs] == ["whole snapshots", "whole sequences"]
    assert [need.fact for need in Exchange(structure=NoExchange(), time=Relay()).needs] == ["whole snapshots"]
    assert [need.fact for need in Exchange(structure=Halo(), time=NoTimeExchange()).needs] == ["whole sequences"]


def test_exchange_is_exact_only_if_both_strategies_are() -> None:
    class InexactHalo(Halo):
        exact = False

    class InexactRelay(Relay):
        exact = False

    assert not Exchange(structure=InexactHalo(), time=Relay()).exact
    assert not Exchange(structure=Halo(), time=InexactRelay()).exact
