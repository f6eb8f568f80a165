"""Tuning: a walk over settings that ends, within its limits, the same on all ranks and for runs that were stopped."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strobe
from strobe.batching import Trapezoid
from strobe.batching.base import EpochResult
from strobe.batching.trapezoid import Decay
from strobe.cli.options.plan import override_choices, read_plan
from strobe.engine import DivergedError, Progress, Run
from strobe.engine.checkpoint import store
from strobe.engine.context import RunContext
from strobe.engine.evaluation.evaluate import Evaluator
from strobe.engine.sources import decay as engine_decay
from strobe.engine.sources import sliding as engine_sliding
from strobe.engine.sources.decay import SHARES, neighbor_settings
from strobe.engine.sources.sliding import SlidingWindowSource
from strobe.errors import OptionError
from strobe.exchange import Exchange, Halo, NoTimeExchange
from strobe.graph import DynamicGraph
from strobe.placement import Metis
from strobe.plan import Plan
from strobe.presets import preset
from strobe.schedule import RandomSplit
from tests.engine.sources.test_sliding import Dealt
from tests.support.runs import Noisy, same_tensors, small_graph
from tests.support.trainer import Trainer, assert_same

Setting = tuple[int, float]


def tuned(full: int = 1, window: int = 4, keep: float = 0.1, tune: int = 1, most: float = 1.0) -> Plan:
    return Plan(
        placement=Metis(chunks=8),
        batching=Trapezoid(full=full, decayed=window - full, min_keep=keep, search_every=tune, max_share=most),
        exchange=Exchange(structure=Halo(), time=NoTimeExchange()),
        schedule=RandomSplit(),
    )


@pytest.fixture(scope="module")
def graph() -> DynamicGraph:
    return small_graph()


@pytest.fixture
def likes(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, float], None]:
    """Has validation like a setting, and others the less the further they are."""

    def choose(full: int, keep: float) -> None:
        def score(evaluator: Evaluator) -> dict[str, float]:
            assert isinstance(evaluator._source, SlidingWindowSource)
            decay = evaluator._source.decay
            return {evaluator._job.problem.metric: abs(decay.full - full) + abs(decay.min_keep - keep)}

        monkeypatch.setattr(Evaluator, "score", score)

    return choose


def settings(run: Run) -> list[Setting]:
    return [(line["full"], line["min_keep"]) for line in run.history]


def weights(run: Run) -> Any:
    return run.model.state_dict(), run.head.state_dict()


class Notes(Progress):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


class Pressed(Progress):
    """Somebody who presses Ctrl-C when a step of an epoch is over for the ``time``-th time."""

    def __init__(self, epoch: int, step: int, time: int) -> None:
        self.at, self.left = (epoch, step), time

    def step(self, epoch: int, step: int) -> None:
        self.left -= (epoch, step) == self.at
        if not self.left:
            raise KeyboardInterrupt


def test_neighbors_differ_by_one_step_and_keep_the_window() -> None:
    found = neighbor_settings(Decay(2, 6, 0.1), 64, 1.0)
    assert found == [Decay(1, 7, 0.1), Decay(2, 6, 0.05), Decay(2, 6, 0.2), Decay(3, 5, 0.1)]


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (Decay(1, 7, 0.05), {(1, 0.02), (1, 0.1), (2, 0.05)}),
        (Decay(1, 7, 0.02), {(1, 0.05), (2, 0.02)}),  # nothing below a fiftieth, no fewer than one whole snapshot
        (Decay(2, 6, 0.15), {(1, 0.15), (3, 0.15), (2, 0.1), (2, 0.2)}),  # to the next tenth
        (Decay(2, 6, 0.97), {(1, 0.97), (3, 0.97), (2, 0.9), (2, 1.0)}),
        (Decay(4, 4, 1.0), {(4, 0.9)}),  # all is kept, however many are whole
        (Decay(8, 0, 0.1), {(7, 0.1)}),  # nothing decays, so the share says nothing
        (Decay(1, 0, 0.1), set()),
    ],
    ids=str,
)
def test_steps_end_where_shares_and_windows_do(at: Decay, expected: set[Setting]) -> None:
    assert {(each.full, each.min_keep) for each in neighbor_settings(at, 512, 1.0)} == expected


def test_settings_that_retain_the_same_chunks_are_not_tried() -> None:
    assert neighbor_settings(Decay(2, 6, 0.5), 1, 1.0) == []


def test_a_step_goes_as_far_as_it_takes_to_keep_other_chunks() -> None:
    assert Decay(1, 2, 0.1).num_chunks_by_age(3) == Decay(1, 2, 0.4).num_chunks_by_age(3) == (3, 1, 1)
    assert neighbor_settings(Decay(1, 2, 0.1), 3, 1.0) == [Decay(1, 2, 0.5), Decay(2, 1, 0.1)]


@given(
    full=st.integers(1, 8),
    decayed=st.integers(0, 8),
    keep=st.sampled_from(SHARES),
    num_chunks=st.integers(1, 200),
    most=st.floats(0.05, 1),
)
def test_no_neighbor_exceeds_max_share(full: int, decayed: int, keep: float, num_chunks: int, most: float) -> None:
    decay = Decay(full, decayed, keep)
    found = neighbor_settings(decay, num_chunks, most)
    kept = [each.num_chunks_by_age(num_chunks) for each in found]
    assert len({decay.num_chunks_by_age(num_chunks), *kept}) == len(kept) + 1
    assert all(sum(each) <= most * num_chunks * decay.window + 1e-9 for each in kept)
    assert all(each.window == decay.window and each.min_keep in SHARES for each in found)


def test_the_search_walks_to_the_best_setting_and_stops(
    graph: DynamicGraph, likes: Callable[[int, float], None]
) -> None:
    likes(3, 0.2)
    (run,) = Trainer(graph, "tgcn", "regression").train(tuned(window=5), 1, epochs=4)
    assert settings(run)[:3] == [(2, 0.1), (3, 0.1), (3, 0.2)]
    assert set(settings(run)[3:]) == {(3, 0.2)}


def test_rounds_come_every_n_epochs_until_the_search_is_done(
    graph: DynamicGraph, likes: Callable[[int, float], None], tmp_path: Path
) -> None:
    likes(2, 0.1)
    notes = Notes()
    run = strobe.train(graph, "tgcn", "regression", plan=tuned(tune=2), epochs=6, out=tmp_path / "run", progress=notes)
    assert settings(run) == [(1, 0.1)] + [(2, 0.1)] * 5
    events = [json.loads(line) for line in (tmp_path / "run" / "record.jsonl").read_text().splitlines()]
    rounds = [event for event in events if event["event"] == "decay_search"]
    assert [(each["epoch"], each["done"]) for each in rounds] == [(2, False), (4, True)]
    assert rounds[0]["chosen"] == {"full": 2, "decayed": 2, "min_keep": 0.1}
    tried = [(each["full"], each["min_keep"]) for each in rounds[0]["candidates"]]
    assert tried[0] == (1, 0.1)
    assert set(tried[1:]) == {(2, 0.1), (1, 0.05), (1, 0.2)}
    said = [text for text in notes.said if "setting" in text]
    assert len(said) == 2
    assert "1.0000 with full=1 min_keep=0.1 as before" in said[0]
    assert "full=2 min_keep=0.1 goes on" in said[0]
    assert "full=2 min_keep=0.1 stays: the search is done" in said[1]


def test_the_current_setting_wins_without_a_trace_of_trials(
    graph: DynamicGraph, likes: Callable[[int, float], None]
) -> None:
    """Weights, optimiser, random numbers and inherited states are those of its own epoch, bit by bit."""
    likes(2, 0.1)
    options: dict[str, Any] = {"epochs": 4, "lr": 0.01}
    plain = strobe.train(graph, Noisy, "regression", plan=tuned(full=2, tune=0), **options)
    tried = strobe.train(graph, Noisy, "regression", plan=tuned(full=2, tune=2), **options)
    assert [line["loss"] for line in tried.history] == [line["loss"] for line in plain.history]
    assert [line["step"] for line in tried.history] == [line["step"] for line in plain.history]
    assert same_tensors(weights(tried), weights(plain))
    assert "full" not in plain.history[-1]


def test_a_neighbor_that_wins_has_trained_from_the_same_start(
    graph: DynamicGraph, likes: Callable[[int, float], None]
) -> None:
    likes(2, 0.1)
    for epochs in (1, 3):
        alone = strobe.train(graph, Noisy, "regression", plan=tuned(full=2, tune=0), epochs=epochs)
        found = strobe.train(graph, Noisy, "regression", plan=tuned(full=1, tune=1), epochs=epochs)
        assert [line["loss"] for line in found.history] == [line["loss"] for line in alone.history]
        assert same_tensors(weights(found), weights(alone))


def test_what_was_tried_before_does_not_matter(
    graph: DynamicGraph, likes: Callable[[int, float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    likes(2, 0.1)
    options: dict[str, Any] = {"plan": tuned(tune=2), "epochs": 2, "lr": 0.01}
    many = strobe.train(graph, Noisy, "regression", **options)
    monkeypatch.setattr(engine_decay, "neighbor_settings", lambda *_: [Decay(2, 2, 0.1)])
    one = strobe.train(graph, Noisy, "regression", **options)
    assert settings(many) == settings(one) == [(1, 0.1), (2, 0.1)]
    assert same_tensors(weights(many), weights(one))


def test_the_winner_is_the_best_of_what_was_scored(graph: DynamicGraph, tmp_path: Path) -> None:
    run = strobe.train(graph, "tgcn", "regression", plan=tuned(tune=1), epochs=4, lr=0.02, out=tmp_path / "run")
    metric, sign = run.problem.metric, -1 if run.problem.higher_is_better else 1
    events = [json.loads(line) for line in (tmp_path / "run" / "record.jsonl").read_text().splitlines()]
    rounds = [event for event in events if event["event"] == "decay_search"]
    assert rounds
    for each in rounds:
        line = run.history[each["epoch"] - 1]
        scores = [trial["validation"][metric] for trial in each["candidates"]]
        assert line["validation"][metric] == min(scores, key=lambda score: sign * score)
        assert (line["full"], line["min_keep"]) == (each["chosen"]["full"], each["chosen"]["min_keep"])


def test_the_search_stays_within_max_share(graph: DynamicGraph, likes: Callable[[int, float], None]) -> None:
    likes(4, 1.0)
    (run,) = Trainer(graph, "tgcn", "regression").train(tuned(most=0.7), 1, epochs=6)
    shares = [Decay(full, 4 - full, keep).window_share(8) for full, keep in settings(run)]
    assert shares[0] < shares[-1] <= 0.7
    assert all(
        each.window_share(8) > 0.7
        for each in neighbor_settings(Decay(*_last(run)), 8, 1.0)
        if each.window_share(8) > shares[-1]
    )


def _last(run: Run) -> tuple[int, int, float]:
    line = run.history[-1]
    return line["full"], line["decayed"], line["min_keep"]


def test_a_start_above_max_share_is_refused(graph: DynamicGraph) -> None:
    with pytest.raises(OptionError, match=r"begins with 78% .* may reach 50%.*raise most"):
        Trainer(graph, "tgcn", "regression").train(tuned(full=3, most=0.5), 1)


def test_a_setting_that_diverges_is_not_chosen(graph: DynamicGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    fit_module: Any = sys.modules["strobe.engine.fit"]
    train_epoch = fit_module.train_epoch

    def breaks(run: RunContext) -> EpochResult:
        result: EpochResult = train_epoch(run)
        assert isinstance(run.source, SlidingWindowSource)
        if run.source.decay.full != 2:
            raise DivergedError("the loss", run.state.epoch + 1, run.settings)
        return result

    monkeypatch.setattr(fit_module, "train_epoch", breaks)
    (run,) = Trainer(graph, "tgcn", "regression").train(tuned(full=2), 1, epochs=3)
    assert {full for full, _ in settings(run)} == {2}
    with pytest.raises(DivergedError):  # the current setting diverges as it would without tuning
        Trainer(graph, "tgcn", "regression").train(tuned(full=1), 1, epochs=1)


def test_ranks_search_as_one_does(
    graph: DynamicGraph, likes: Callable[[int, float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        engine_sliding, "sample_retention_order", lambda ranks, seed: np.random.default_rng(seed).permutation(8)
    )
    trainer = Trainer(graph, "tgcn", "regression")
    trainer.same_head(monkeypatch)
    plan = replace(tuned(tune=1), placement=Dealt())
    (one,) = trainer.train(plan, 1, epochs=2)
    two = trainer.train(plan, 2, epochs=2)
    assert_same(two, one)
    assert [settings(run) for run in two] == [settings(one)] * 2
    likes(3, 0.1)
    (one,) = trainer.train(plan, 1, epochs=3)
    two = trainer.train(plan, 2, epochs=3)
    assert_same(two, one, scored=False)
    assert settings(two[1]) == settings(one) == [(2, 0.1), (3, 0.1), (3, 0.1)]


@pytest.mark.parametrize(
    ("model", "moments"),
    [("mpnn-lstm", {"between rounds": (3, 2, 1)}), (Noisy, {"in a trial": (4, 2, 3), "later": (5, 1, 1)})],
)
def test_a_run_stopped_during_the_search_resumes_to_the_same_weights(
    graph: DynamicGraph,
    likes: Callable[[int, float], None],
    model: Any,
    moments: dict[str, tuple[int, int, int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "SAVE_EVERY_S", 0.0)
    likes(2, 0.2)
    batching = Trapezoid(full=1, decayed=3, degrees="snapshot", search_every=2)
    options: dict[str, Any] = {"plan": replace(tuned(), batching=batching), "epochs": 6}
    whole = strobe.train(graph, model, "regression", **options, out=tmp_path / "whole")
    assert len({*settings(whole)}) == 3
    assert _rounds(tmp_path / "whole") == [(2, False), (4, False), (6, True)]
    for name, moment in moments.items():
        with pytest.raises(KeyboardInterrupt):
            strobe.train(graph, model, "regression", **options, out=tmp_path / name, progress=Pressed(*moment))
        again = strobe.train(graph, model, out=tmp_path / name, resume=True)
        assert settings(again) == settings(whole)
        assert same_tensors(weights(again), weights(whole)), name
        assert _rounds(tmp_path / name) == _rounds(tmp_path / "whole")


def _rounds(path: Path) -> list[tuple[int, bool]]:
    lines = [json.loads(line) for line in (path / "record.jsonl").read_text().splitlines()]
    return [(line["epoch"], line["done"]) for line in lines if line["event"] == "decay_search"]


def test_the_command_line_and_the_preset_take_it() -> None:
    plan = override_choices(read_plan("flare"), {"batching": "trapezoid:search_every=5,max_share=0.7"})
    assert plan.batching == Trapezoid(search_every=5, max_share=0.7)
    assert preset("flare", full=2, decayed=6, min_keep=0.1, search_every=3).batching == Trapezoid(search_every=3)
    assert all(later > sooner for sooner, later in pairwise(SHARES))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"search_every": -1}, "not -1"),
        ({"search_every": 1, "max_share": 0}, "above 0"),
        ({"max_share": 0.5}, "give search_every"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        Trapezoid(**options)


def test_a_search_needs_node_chunks_also_without_decay() -> None:
    facts = [need.fact for need in Trapezoid(full=3, decayed=0, search_every=1).needs]
    assert "node chunks" in facts
    assert "node chunks" not in [need.fact for need in Trapezoid(full=3, decayed=0).needs]
