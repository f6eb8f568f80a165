from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.batching.learner import UNITS, WORST, Learner, _Network, reward
from strobe.errors import OptionError


class Training:
    """A made-up training: each size takes its seconds, after which the loss is lower by its fall, both with noise."""

    def __init__(self, seconds: list[float], falls: list[float], *, noise: float, seed: int) -> None:
        self._random = np.random.default_rng([seed, 1])
        order = self._random.permutation(len(seconds))  # so that the best is not always the same action
        self.seconds, self.falls = np.array(seconds)[order], np.array(falls)[order]
        self.order = (-self.falls / self.seconds).argsort().tolist()  # the size that falls most per second first
        self._noise, self._loss = noise, 10.0

    def step(self, size: int) -> tuple[float, float]:
        """The loss before the step, and its seconds."""
        loss = self._loss
        self._loss -= 1e-3 * float(self.falls[size]) * (1 + self._noise * self._random.standard_normal())
        return loss, float(self.seconds[size]) * math.exp(0.1 * self._random.standard_normal())


def in_turn(learner: Learner, seen: list[tuple[float, float]]) -> list[int]:
    return [learner.learn(loss, seconds) for loss, seconds in seen]


def some(num: int, seed: int = 0) -> list[tuple[float, float]]:
    """Losses and seconds of so many steps."""
    random = np.random.default_rng(seed)
    return [(float(10 / (k + 1) + random.normal()), float(random.uniform(0.5, 2))) for k in range(num)]


def saved(found: dict[str, Any]) -> dict[str, Any]:
    """As a checkpoint would carry it."""
    file = io.BytesIO()
    torch.save(found, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


def is_finite(learner: Learner) -> bool:
    network = learner.remembered()["network"]
    return all(bool(network[name].isfinite().all()) for name in ("weights", "slow", "mean", "square"))


@pytest.mark.parametrize(
    ("last_seconds", "seconds", "last_fall", "fall", "by_hand"),
    [
        (4.0, 1.0, 1.0, 1.0, 0.75),  # as in the paper: three quarters of the seconds are saved
        (1.0, 4.0, 1.0, 1.0, -0.75),  # and the change back; -3 in the paper
        (1.0, 1.0, 1.0, 4.0, 0.75),  # as in the paper
        (1.0, 1.0, 4.0, 1.0, -0.75),  # -3 in the paper
        (2.0, 1.0, 0.5, 1.0, 1.0),
        (1.0, 2.0, 1.0, 2.0, 0.0),  # twice the fall in twice the seconds
        (1.0, 10.0, 1.0, 15.0, 14 / 15 - 0.9),  # more per second
        (1.0, 1.0, -1.0, 1.0, 2.0),  # as in the paper
        (1.0, 1.0, 1.0, -1.0, -2.0),  # the loss rises: 2 in the paper
        (1.0, 1.0, -2.0, -1.0, 0.5),  # it rises less
        (1.0, 1.0, 1.0, 0.0, -1.0),  # divided by 0 in the paper
        (1.0, 1.0, 0.0, 0.0, 0.0),
        (0.0, 0.0, 1.0, 1.0, 0.0),
        (0.0, 1.0, 1.0, 1.0, -1.0),
        (1.0, 1.0, 1.0, math.nan, WORST),
        (1.0, 1.0, 1.0, -math.inf, WORST),
        (1.0, 1.0, -1e308, 1e308, 2.0),
    ],
)
def test_rewards_by_hand(last_seconds: float, seconds: float, last_fall: float, fall: float, by_hand: float) -> None:
    given = reward(last_seconds=last_seconds, seconds=seconds, last_fall=last_fall, fall=fall)
    assert given == pytest.approx(by_hand)


amounts = st.floats(0, 1e300)
falls = st.floats(-1e300, 1e300)


@given(amounts, amounts, falls, falls)
def test_a_change_and_the_change_back_have_opposite_rewards_within_bounds(
    first_s: float, second_s: float, first: float, second: float
) -> None:
    there = reward(last_seconds=first_s, seconds=second_s, last_fall=first, fall=second)
    back = reward(last_seconds=second_s, seconds=first_s, last_fall=second, fall=first)
    assert there == -back
    assert WORST <= there <= -WORST


@given(*[st.floats(1e-3, 1e3)] * 4)
def test_a_reward_is_above_0_where_the_loss_falls_further_per_second(
    first_s: float, second_s: float, first: float, second: float
) -> None:
    given = reward(last_seconds=first_s, seconds=second_s, last_fall=first, fall=second)
    faster = second / second_s - first / first_s
    assert abs(given) < 1e-9 or (given > 0) == (faster > 0)


SIX = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0], [1.0, 3.0, 10.0, 13.0, 16.0, 20.0]  # the third falls most per second
LARGEST = [1.0, 2.0, 4.0, 8.0], [1.0, 3.0, 9.0, 27.0]
SMALLEST = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0], [1.0, 1.4, 2.0, 2.8, 4.0, 5.6]


@pytest.mark.parametrize("sizes", [SIX, LARGEST, SMALLEST])
def test_it_finds_the_sizes_that_bring_the_loss_down_fastest(sizes: tuple[list[float], list[float]]) -> None:
    best, good, num_seeds = [], [], 12
    for seed in range(num_seeds):
        training, learner = Training(*sizes, noise=0.3, seed=seed), Learner(len(sizes[0]), seed=seed)
        chosen = []
        for _ in range(300):
            learner.learn(*training.step(learner.action))
            chosen.append(training.order.index(learner.best))
        best.append(np.mean(np.array(chosen[100:]) == 0))
        good.append(np.mean(np.array(chosen[100:]) <= 1))
    assert np.mean(best) > 0.6  # by chance: a sixth, or a quarter
    assert np.mean(good) > 0.85
    assert np.sum(np.array(good) > 0.5) >= num_seeds - 1


def test_it_changes_its_mind_when_another_size_becomes_the_best() -> None:
    late = []
    for seed in range(5):
        training, learner = Training(*LARGEST, noise=0.1, seed=seed), Learner(4, seed=seed)
        for _ in range(150):
            learner.learn(*training.step(learner.action))
        training.falls = training.falls.mean() * np.ones(4)  # now the smallest is
        for _ in range(450):
            learner.learn(*training.step(learner.action))
        late += [training.seconds[learner.best]]
    assert np.median(late) == 1.0


def test_a_step_is_judged_by_the_loss_after_it() -> None:
    """Of two sizes that take as long, one brings the loss down. Taken in turn, it is known by the loss that follows."""
    learner = Learner(2, epsilon=1.0, decay=1.0)
    loss = 100.0
    for _ in range(200):
        falls = learner.action == 1
        learner.learn(loss, 1.0)
        loss -= falls
    assert learner.best == 1


def test_the_same_seed_gives_the_same_actions_and_another_seed_others() -> None:
    seen = some(120)
    assert in_turn(Learner(6, seed=3), seen) == in_turn(Learner(6, seed=3), seen)
    assert in_turn(Learner(6, seed=3), seen) != in_turn(Learner(6, seed=4), seen)
    assert len({Learner(6, seed=seed).action for seed in range(40)}) == 6


@pytest.mark.parametrize("num", [0, 1, 2, 3, 70])
def test_a_learner_that_recalls_goes_on_as_if_never_interrupted(num: int) -> None:
    seen = some(num + 80)
    whole, first, second = Learner(5, seed=1, memory=50), Learner(5, seed=1, memory=50), Learner(5, seed=9, memory=50)
    in_turn(whole, seen[:num])
    in_turn(first, seen[:num])
    found = saved(first.remembered())
    in_turn(first, some(5))  # what was remembered stays as it was
    second.recall(found)
    assert second.action == whole.action
    assert in_turn(second, seen[num:]) == in_turn(whole, seen[num:])
    assert second.epsilon == whole.epsilon
    assert torch.equal(second.remembered()["network"]["weights"], whole.remembered()["network"]["weights"])


def test_what_is_remembered_does_not_change_while_learning_goes_on() -> None:
    learner = Learner(3)
    in_turn(learner, some(20))
    found = learner.remembered()
    weights, rows = found["network"]["weights"].clone(), found["memory"]["rows"].clone()
    in_turn(learner, some(20))
    assert torch.equal(found["network"]["weights"], weights)
    assert torch.equal(found["memory"]["rows"], rows)
    assert not torch.equal(learner.remembered()["network"]["weights"], weights)


def test_what_was_learned_among_other_sizes_is_refused() -> None:
    with pytest.raises(OptionError, match="among 4, not 6"):
        Learner(6).recall(Learner(4).remembered())


def test_sizes_are_drawn_by_lot_ever_less_often() -> None:
    learner = Learner(4, epsilon=0.8, decay=0.5, least=0.15)
    shares = [learner.epsilon]
    for loss, seconds in some(4):
        learner.learn(loss, seconds)
        shares.append(learner.epsilon)
    assert shares == pytest.approx([0.8, 0.4, 0.2, 0.15, 0.15])


def test_without_lots_it_takes_the_best_and_with_lots_only_any() -> None:
    greedy, drawn = Learner(4, epsilon=0.0, least=0.0), Learner(4, decay=1.0)
    actions = []
    for loss, seconds in some(100):
        assert greedy.learn(loss, seconds) == greedy.best
        actions.append(drawn.learn(loss, seconds))
    assert min(np.bincount(actions, minlength=4)) > 10


numbers = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf, -math.inf, 1e308, -1e308, 1e-308, 5e-324, -5e-324]),
    st.floats(-1e9, 1e9),
)


@settings(max_examples=60)
@given(st.integers(1, 6), st.lists(st.tuples(numbers, st.sampled_from([0.0, 5e-324, 1e-6, 1.0, 1e300])), max_size=40))
def test_no_losses_or_seconds_spoil_the_network(num_actions: int, seen: list[tuple[float, float]]) -> None:
    learner = Learner(num_actions, memory=16, replay=8)
    assert all(0 <= action < num_actions for action in in_turn(learner, seen))
    assert is_finite(learner)
    assert -1 <= learner.remembered()["state"] <= 1


@pytest.mark.parametrize("scale", [2.0**-40, 2.0**40])
def test_the_scale_of_losses_changes_no_decision(scale: float) -> None:
    seen = some(100)
    assert in_turn(Learner(4), [(loss * scale, seconds) for loss, seconds in seen]) == in_turn(Learner(4), seen)


def test_a_size_that_makes_the_loss_no_number_is_blamed_and_avoided() -> None:
    for seed in range(5):
        learner = Learner(4, seed=seed)
        spoils, loss, num_spoilt = 2, 1.0, 0
        for _ in range(150):
            spoilt = learner.action == spoils
            learner.learn(loss, 1.0)
            loss = math.nan if spoilt else 1.0
            num_spoilt += spoilt
        learner.learn(loss, 1.0)
        rows = learner.remembered()["memory"]["rows"]
        blamed = rows[rows[:, 2] == WORST]
        assert len(blamed) == num_spoilt
        assert set(blamed[:, 1].tolist()) == {spoils}
        assert learner.best != spoils
        assert is_finite(learner)


def test_the_gradient_is_that_of_autograd() -> None:
    random = np.random.default_rng(0)
    network = _Network(3, 0.1, random)
    network._weights[:] = random.normal(size=len(network._weights))
    states, wrong = random.normal(size=7), random.normal(size=(7, 3))
    hidden, values = network._forward(network._weights, states)
    weights = torch.tensor(network._weights, requires_grad=True)
    into, bias, out, out_bias = weights.split([UNITS, UNITS, 3 * UNITS, 3])
    expected = torch.tanh(torch.tensor(states)[:, None] * into + bias) @ out.reshape(UNITS, 3) + out_bias
    expected.backward(torch.tensor(wrong))
    assert weights.grad is not None
    np.testing.assert_allclose(values, expected.detach().numpy())
    np.testing.assert_allclose(network._backward(states, hidden, wrong), weights.grad.numpy())


def test_only_the_last_experiences_are_kept() -> None:
    short, long = Learner(3, memory=8), Learner(3)
    steady = [(float(10 - k), 1.0) for k in range(12)]
    for learner in (short, long):
        in_turn(learner, [(50.0, 1.0), *steady, *steady])  # 50 to 10, and -1 to 10, are no steady falls
    assert short.remembered()["memory"]["rows"].shape == (8, 4)
    assert short.remembered()["memory"]["rows"][:, 2].abs().max() == 0
    assert long.remembered()["memory"]["rows"][:, 2].abs().max() > 1


@pytest.mark.parametrize(
    "options",
    [{"num_actions": 0}, {"memory": 0}, {"replay": 0}, {"gamma": 1.5}, {"epsilon": -0.1}, {"lr": math.nan}],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(OptionError, match=name):
        Learner(**{"num_actions": 4} | options)
