from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.batching.size_agent import HIDDEN_UNITS, WORST_REWARD, SizeAgent, _QNetwork, compute_reward
from strobe.errors import OptionError


class Training:
    """A simulated training: each size has seconds and a decrease of the loss, both with noise."""

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


def in_turn(agent: SizeAgent, seen: list[tuple[float, float]]) -> list[int]:
    return [agent.observe(loss, seconds) for loss, seconds in seen]


def some(num: int, seed: int = 0) -> list[tuple[float, float]]:
    """Losses and seconds of ``num`` steps."""
    random = np.random.default_rng(seed)
    return [(float(10 / (k + 1) + random.normal()), float(random.uniform(0.5, 2))) for k in range(num)]


def saved(found: dict[str, Any]) -> dict[str, Any]:
    """Save and load a state."""
    file = io.BytesIO()
    torch.save(found, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


def is_finite(agent: SizeAgent) -> bool:
    network = agent.state_dict()["network"]
    return all(bool(network[name].isfinite().all()) for name in ("weights", "target", "mean", "square"))


@pytest.mark.parametrize(
    ("last_seconds", "seconds", "last_fall", "fall", "by_hand"),
    [
        (4.0, 1.0, 1.0, 1.0, 0.75),  # as in the paper: three quarters of the seconds are saved
        (1.0, 4.0, 1.0, 1.0, -0.75),  # and the change back; -3 in the paper
        (1.0, 1.0, 1.0, 4.0, 0.75),  # as in the paper
        (1.0, 1.0, 4.0, 1.0, -0.75),  # -3 in the paper
        (1.0, 2.0, 1.0, 2.0, 0.0),  # twice the fall in twice the seconds
        (1.0, 10.0, 1.0, 15.0, 14 / 15 - 0.9),  # more per second
        (1.0, 1.0, -1.0, 1.0, 2.0),  # as in the paper
        (1.0, 1.0, 1.0, -1.0, -2.0),  # the loss rises: 2 in the paper
        (1.0, 1.0, -2.0, -1.0, 0.5),  # it rises less
        (1.0, 1.0, 1.0, 0.0, -1.0),  # divided by 0 in the paper
        (1.0, 1.0, 0.0, 0.0, 0.0),
        (0.0, 1.0, 1.0, 1.0, -1.0),
        (1.0, 1.0, 1.0, math.nan, WORST_REWARD),
        (1.0, 1.0, 1.0, -math.inf, WORST_REWARD),
        (1.0, 1.0, -1e308, 1e308, 2.0),
    ],
)
def test_reward_values(last_seconds: float, seconds: float, last_fall: float, fall: float, by_hand: float) -> None:
    reward = compute_reward(last_seconds=last_seconds, seconds=seconds, last_fall=last_fall, fall=fall)
    assert reward == pytest.approx(by_hand)


amounts = st.floats(0, 1e300)
falls = st.floats(-1e300, 1e300)


@given(amounts, amounts, falls, falls)
def test_reward_is_bounded_and_antisymmetric(first_s: float, second_s: float, first: float, second: float) -> None:
    forward = compute_reward(last_seconds=first_s, seconds=second_s, last_fall=first, fall=second)
    backward = compute_reward(last_seconds=second_s, seconds=first_s, last_fall=second, fall=first)
    assert forward == -backward
    assert WORST_REWARD <= forward <= -WORST_REWARD


@given(*[st.floats(1e-3, 1e3)] * 4)
def test_reward_is_positive_for_a_larger_decrease_per_second(
    first_s: float, second_s: float, first: float, second: float
) -> None:
    reward = compute_reward(last_seconds=first_s, seconds=second_s, last_fall=first, fall=second)
    faster = second / second_s - first / first_s
    assert abs(reward) < 1e-9 or (reward > 0) == (faster > 0)


SIX = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0], [1.0, 3.0, 10.0, 13.0, 16.0, 20.0]  # the third falls most per second
LARGEST = [1.0, 2.0, 4.0, 8.0], [1.0, 3.0, 9.0, 27.0]
SMALLEST = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0], [1.0, 1.4, 2.0, 2.8, 4.0, 5.6]


@pytest.mark.parametrize("sizes", [SIX, LARGEST, SMALLEST])
def test_agent_finds_the_fastest_sizes(sizes: tuple[list[float], list[float]]) -> None:
    best, good, num_seeds = [], [], 6
    for seed in range(num_seeds):
        training, agent = Training(*sizes, noise=0.3, seed=seed), SizeAgent(len(sizes[0]), seed=seed)
        chosen = []
        for _ in range(300):
            agent.observe(*training.step(agent.action))
            chosen.append(training.order.index(agent.greedy_action))
        best.append(np.mean(np.array(chosen[100:]) == 0))
        good.append(np.mean(np.array(chosen[100:]) <= 1))
    assert np.mean(best) > 0.6  # by chance: a sixth, or a quarter
    assert np.mean(good) > 0.85
    assert np.sum(np.array(good) > 0.5) >= num_seeds - 1


def test_agent_adapts_when_another_size_becomes_fastest() -> None:
    late = []
    for seed in range(5):
        training, agent = Training(*LARGEST, noise=0.1, seed=seed), SizeAgent(4, seed=seed)
        for _ in range(150):
            agent.observe(*training.step(agent.action))
        training.falls = training.falls.mean() * np.ones(4)  # now the smallest is
        for _ in range(450):
            agent.observe(*training.step(agent.action))
        late += [training.seconds[agent.greedy_action]]
    assert np.median(late) == 1.0


def test_step_is_rewarded_by_the_next_loss() -> None:
    """Two sizes take equal seconds, and one decreases the loss."""
    agent = SizeAgent(2, epsilon=1.0, epsilon_decay=1.0)
    loss = 100.0
    for _ in range(200):
        falls = agent.action == 1
        agent.observe(loss, 1.0)
        loss -= falls
    assert agent.greedy_action == 1


@pytest.mark.parametrize("num", [0, 1, 2, 3, 70])
def test_agent_resumes_from_its_state(num: int) -> None:
    seen = some(num + 80)
    whole, first, second = (
        SizeAgent(5, seed=1, replay_size=50),
        SizeAgent(5, seed=1, replay_size=50),
        SizeAgent(5, seed=9, replay_size=50),
    )
    in_turn(whole, seen[:num])
    in_turn(first, seen[:num])
    found = saved(first.state_dict())
    in_turn(first, some(5))  # must not change the saved state
    second.load_state_dict(found)
    assert second.action == whole.action
    assert in_turn(second, seen[num:]) == in_turn(whole, seen[num:])
    assert second.epsilon == whole.epsilon
    assert torch.equal(second.state_dict()["network"]["weights"], whole.state_dict()["network"]["weights"])


def test_state_of_another_number_of_sizes_is_refused() -> None:
    with pytest.raises(OptionError, match=r"among 4 .*, not 6"):
        SizeAgent(6).load_state_dict(SizeAgent(4).state_dict())


def test_epsilon_decays_to_its_minimum() -> None:
    agent = SizeAgent(4, epsilon=0.8, epsilon_decay=0.5, min_epsilon=0.15)
    shares = [agent.epsilon]
    for loss, seconds in some(4):
        agent.observe(loss, seconds)
        shares.append(agent.epsilon)
    assert shares == pytest.approx([0.8, 0.4, 0.2, 0.15, 0.15])


def test_epsilon_0_is_greedy_and_epsilon_1_is_random() -> None:
    greedy, random = SizeAgent(4, epsilon=0.0, min_epsilon=0.0), SizeAgent(4, epsilon_decay=1.0)
    actions = []
    for loss, seconds in some(100):
        assert greedy.observe(loss, seconds) == greedy.greedy_action
        actions.append(random.observe(loss, seconds))
    assert min(np.bincount(actions, minlength=4)) > 10


numbers = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf, -math.inf, 1e308, -1e308, 1e-308, 5e-324, -5e-324]),
    st.floats(-1e9, 1e9),
)


@settings(max_examples=60)
@given(st.integers(1, 6), st.lists(st.tuples(numbers, st.sampled_from([0.0, 5e-324, 1e-6, 1.0, 1e300])), max_size=40))
def test_weights_stay_finite(num_actions: int, seen: list[tuple[float, float]]) -> None:
    agent = SizeAgent(num_actions, replay_size=16, replay_batch=8)
    assert all(0 <= action < num_actions for action in in_turn(agent, seen))
    assert is_finite(agent)
    assert -1 <= agent.state_dict()["state"] <= 1


def test_size_that_makes_the_loss_nan_is_avoided() -> None:
    for seed in range(5):
        agent = SizeAgent(4, seed=seed)
        spoils, loss, num_spoilt = 2, 1.0, 0
        for _ in range(150):
            spoilt = agent.action == spoils
            agent.observe(loss, 1.0)
            loss = math.nan if spoilt else 1.0
            num_spoilt += spoilt
        agent.observe(loss, 1.0)
        rows = agent.state_dict()["replay"]["rows"]
        blamed = rows[rows[:, 2] == WORST_REWARD]
        assert len(blamed) == num_spoilt
        assert set(blamed[:, 1].tolist()) == {spoils}
        assert agent.greedy_action != spoils
        assert is_finite(agent)


def test_gradient_equals_autograd() -> None:
    random = np.random.default_rng(0)
    network = _QNetwork(3, 0.1, random)
    network._weights[:] = random.normal(size=len(network._weights))
    states, gradient = random.normal(size=7), random.normal(size=(7, 3))
    hidden, values = network._forward(network._weights, states)
    weights = torch.tensor(network._weights, requires_grad=True)
    into, bias, out, out_bias = weights.split([HIDDEN_UNITS, HIDDEN_UNITS, 3 * HIDDEN_UNITS, 3])
    expected = torch.tanh(torch.tensor(states)[:, None] * into + bias) @ out.reshape(HIDDEN_UNITS, 3) + out_bias
    expected.backward(torch.tensor(gradient))
    assert weights.grad is not None
    np.testing.assert_allclose(values, expected.detach().numpy())
    np.testing.assert_allclose(network._backward(states, hidden, gradient), weights.grad.numpy())


@pytest.mark.parametrize(
    "options",
    [{"num_actions": 0}, {"replay_size": 0}, {"replay_batch": 0}, {"gamma": 1.5}, {"epsilon": -0.1}, {"lr": math.nan}],
)
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(OptionError, match=name):
        SizeAgent(**{"num_actions": 4} | options)
