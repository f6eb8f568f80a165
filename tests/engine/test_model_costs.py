from __future__ import annotations

from typing import Any

import pytest
import torch

from strobe.engine.inputs.model_choice import choose_model
from strobe.engine.model_costs import measure_model_costs
from strobe.exchange import Exchange, Halo, NoTimeExchange, Relay, Shuffle, Stale, StaleTime, TimeExchange
from strobe.placement import ModelCosts
from tests.support.runs import small_graph

HIDDEN = 8


def work(model: str, time: TimeExchange, dtype: torch.dtype = torch.float32, **options: Any) -> ModelCosts:
    choice = choose_model(model, {"hidden": HIDDEN, **options})
    return measure_model_costs(choice, small_graph(), Exchange(structure=Halo(), time=time), dtype)


def test_features_do_not_travel_so_a_first_convolution_costs_nothing() -> None:
    assert work("wd-gcn", Relay(), layers=1).arc_bytes == 0
    assert work("wd-gcn", Relay(), layers=3).arc_bytes == 2 * 4 * HIDDEN


def test_convolutions_of_three_gates_send_three_rows_and_relay_sends_the_state() -> None:
    told = work("tgcn", Relay(), layers=2)
    assert (told.arc_bytes, told.state_bytes, told.cell_bytes) == (4 * 3 * HIDDEN, 4 * HIDDEN, 0)


def test_a_state_of_an_lstm_is_two_rows() -> None:
    assert work("wd-gcn", Relay()).state_bytes == 2 * 4 * HIDDEN


@pytest.mark.parametrize("time", [Relay(), Shuffle(), StaleTime()])
def test_attention_is_shuffled_there_and_back(time: TimeExchange) -> None:
    told = work("dysat", time, heads=2)
    assert (told.state_bytes, told.cell_bytes) == (0, 2 * 4 * HIDDEN)


def test_nothing_travels_in_time_where_sequences_stay() -> None:
    told = work("wd-gcn", NoTimeExchange())
    assert (told.state_bytes, told.cell_bytes) == (0, 0)


def test_wider_numbers_are_wider() -> None:
    assert work("tgcn", Relay(), torch.float64).state_bytes == 8 * HIDDEN


def test_a_model_that_steps_through_time_counts_a_snapshot_once() -> None:
    told = work("dcrnn", Relay())
    assert told.state_bytes == 4 * HIDDEN
    assert told.arc_bytes == work("dcrnn", StaleTime()).arc_bytes > 0


def test_staleness_does_not_change_what_a_cut_costs_at_most() -> None:
    choice = choose_model("wd-gcn", {"layers": 2})
    stale = Exchange(structure=Stale(), time=StaleTime())
    fresh = Exchange(structure=Halo(), time=Relay())
    assert measure_model_costs(choice, small_graph(), stale, torch.float32) == measure_model_costs(
        choice, small_graph(), fresh, torch.float32
    )
