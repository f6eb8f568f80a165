"""A deep Q network that chooses the batch size which decreases the loss fastest (Song et al. 2024, 5.1).

As in the paper, the state is the last decrease of the loss, the actions are a few batch sizes, and the reward compares
seconds and decrease of a step with those of the step before; the network learns from a replay buffer, and explores with
a decaying epsilon.

Changed:

- A step's loss is measured before its weights change, so the decrease that a step brings shows in the next step's loss.
  The paper credits it to the next size, which then learns only from seconds. Here a step is rewarded when the next loss
  is known.
- A reward compares two steps, so the replay buffer stores it twice, for the earlier size with the opposite sign.
  Exploration then counts double, and values stay around 0 for any ``gamma``.
- A slow average of the weights (a target network) makes decisions; the last layer starts at 0.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from strobe.errors import OptionError
from strobe.ops.sparse.csr import FloatArray, IntArray

HIDDEN_UNITS = 8
MAX_LOSS = 1e150
"""A loss this far from 0 counts as NaN."""

WORST_REWARD = -3.0
"""The reward of a loss that is NaN or infinite: no comparison gives less."""

_TARGET_UPDATE_RATE = 0.02  # of the target network
_SCALE_UPDATE_RATE = 0.05  # of the running mean of decreases
_MEAN, _SQUARE, _TINY = 0.9, 0.999, 1e-8  # Adam's


def compute_reward(*, last_seconds: float, seconds: float, last_fall: float, fall: float) -> float:
    """Compare a step with the last one: by seconds, -1 to 1, plus by the decrease (``fall``) of the loss, -2 to 2.

    The paper has ``(last_seconds - seconds) / last_seconds + (fall - last_fall) / fall``, which is unbounded for a
    worse step and has the wrong sign where the loss rises. Here each difference is divided by the larger of the two
    amounts (0 where both are 0): equal for a better step, and a change and its reverse have opposite rewards. While
    losses decrease, a positive reward means a larger decrease per second.
    """
    if not (math.isfinite(fall) and math.isfinite(last_fall)):
        return WORST_REWARD
    return _relative_difference(last_seconds, seconds) + _relative_difference(fall, last_fall)


def _relative_difference(more: float, less: float) -> float:
    largest = max(abs(more), abs(less))
    return more / largest - less / largest if largest else 0.0


@dataclass
class _Step:
    """A trained step; its ``fall``, the decrease of the loss, is known after the next step."""

    action: int
    state: float
    loss: float
    seconds: float
    fall: float = math.nan


class SizeAgent:
    """Choose one of a few batch sizes by a small deep Q network; deterministic for a seed, losses and seconds.

    Args:
        num_actions: number of sizes.
        seed: of exploration and of the initial weights.
        gamma: discount of future rewards.
        epsilon: initial probability of a random size.
        epsilon_decay: factor of ``epsilon`` after each decision.
        min_epsilon: lower bound of ``epsilon``.
        lr: learning rate of the network.
        replay_size: transitions in the replay buffer; a decision adds two.
        replay_batch: transitions that each decision learns from.
    """

    def __init__(
        self,
        num_actions: int,
        *,
        seed: int = 0,
        gamma: float = 0.99,
        epsilon: float = 1.0,
        epsilon_decay: float = 0.95,
        min_epsilon: float = 0.1,
        lr: float = 0.005,
        replay_size: int = 512,
        replay_batch: int = 64,
    ) -> None:
        _check_counts(num_actions=num_actions, replay_size=replay_size, replay_batch=replay_batch)
        _check_shares(gamma=gamma, epsilon=epsilon, epsilon_decay=epsilon_decay, min_epsilon=min_epsilon, lr=lr)
        self._num_actions, self._gamma, self._replay_batch = num_actions, gamma, replay_batch
        self._epsilon_decay, self._min_epsilon = epsilon_decay, min_epsilon
        self._random = np.random.default_rng(seed)
        self._network = _QNetwork(num_actions, lr, self._random)
        self._replay = _ReplayBuffer(replay_size)
        self._fall = _DecreaseScale()
        self._state = 0.0
        self._steps: list[_Step] = []  # the last two
        self.epsilon = epsilon
        """Probability that the next decision is random."""
        self.action = int(self._random.integers(num_actions))
        """The size of the next step."""

    @property
    def greedy_action(self) -> int:
        """The size of the next step without exploration."""
        return int(self._network.values(np.array([self._state])).argmax())

    def observe(self, loss: float, seconds: float) -> int:
        """Learn from the loss and the seconds of the last step; returns the next size.

        A loss that is NaN or infinite gives the step before it the worst reward; rewards continue once two losses are
        finite again.
        """
        assert 0 <= seconds < math.inf, f"a step takes some seconds, not {seconds}"
        fall = self._store_reward(loss)
        self._steps = [*self._steps[-1:], _Step(self.action, self._state, loss, seconds)]
        self._state = self._fall.scaled(fall)
        if len(self._replay):
            self._network.fit(*self._replay.sample(self._replay_batch, self._random), gamma=self._gamma)
        explore = self._random.random() < self.epsilon
        self.action = int(self._random.integers(self._num_actions)) if explore else self.greedy_action
        self.epsilon = max(self._min_epsilon, self.epsilon * self._epsilon_decay)
        return self.action

    def _store_reward(self, loss: float) -> float:
        """Store the reward of the last step; returns the decrease of the loss that it brought."""
        if not self._steps:
            return math.nan
        *earlier, last = self._steps
        last.fall = _loss_decrease(last.loss, loss)
        if last.fall == -math.inf:
            self._replay.add(last.state, last.action, WORST_REWARD, self._state)
        elif earlier and math.isfinite(last.fall) and math.isfinite(earlier[0].fall):
            reward = compute_reward(
                last_seconds=earlier[0].seconds,
                seconds=last.seconds,
                last_fall=earlier[0].fall,
                fall=last.fall,
            )
            self._replay.add(last.state, last.action, reward, self._state)
            self._replay.add(last.state, earlier[0].action, -reward, self._state)
        return last.fall

    def state_dict(self) -> dict[str, Any]:
        """The state as plain values and tensors."""
        return {
            "num_actions": self._num_actions,
            "action": self.action,
            "epsilon": self.epsilon,
            "state": self._state,
            "steps": [asdict(step) for step in self._steps],
            "fall": asdict(self._fall),
            "random": self._random.bit_generator.state,
            "replay": self._replay.state_dict(),
            "network": self._network.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the state of an agent with as many sizes."""
        if state["num_actions"] != self._num_actions:
            raise OptionError(
                f"the checkpoint chooses among {state['num_actions']} batch sizes, not {self._num_actions}: resume "
                "with the same sizes, or start again"
            )
        self.action, self.epsilon, self._state = state["action"], state["epsilon"], state["state"]
        self._steps = [_Step(**step) for step in state["steps"]]
        self._fall = _DecreaseScale(**state["fall"])
        self._random.bit_generator.state = state["random"]
        self._replay.load_state_dict(state["replay"])
        self._network.load_state_dict(state["network"])


def _loss_decrease(before: float, after: float) -> float:
    """Decrease of the loss: -inf if ``after`` is not finite, NaN if ``before`` was not."""
    if not abs(after) < MAX_LOSS:
        return -math.inf
    return before - after if abs(before) < MAX_LOSS else math.nan


@dataclass
class _DecreaseScale:
    """Scales decreases of the loss to -1 to 1, by a running geometric mean of their amounts, which becomes 0.5.

    The mean follows losses over many orders of magnitude, and one outlier moves it little.
    """

    log_usual: float = 0.0
    num: int = 0

    def scaled(self, fall: float) -> float:
        """Scale a decrease; an unknown one is 0."""
        if math.isinf(fall):
            return -1.0
        if math.isnan(fall) or not fall:
            return 0.0
        self.num += 1
        self.log_usual += max(_SCALE_UPDATE_RATE, 1 / self.num) * (math.log(abs(fall)) - self.log_usual)
        return fall / (abs(fall) + math.exp(self.log_usual))


class _ReplayBuffer:
    """A ring buffer of transitions: state, action, reward, next state."""

    def __init__(self, size: int) -> None:
        self._rows = np.zeros((size, 4))
        self._num_added = 0

    def __len__(self) -> int:
        return min(self._num_added, len(self._rows))

    def add(self, state: float, action: int, reward: float, next_state: float) -> None:
        self._rows[self._num_added % len(self._rows)] = state, action, reward, next_state
        self._num_added += 1

    def sample(self, num: int, random: np.random.Generator) -> tuple[FloatArray, IntArray, FloatArray, FloatArray]:
        """Sample ``num`` transitions: states, actions, rewards and next states, [M] each."""
        states, actions, rewards, next_states = self._rows[random.integers(len(self), size=num)].T
        return states, actions.astype(np.int64), rewards, next_states

    def state_dict(self) -> dict[str, Any]:
        return {"rows": torch.from_numpy(self._rows.copy()), "num_added": self._num_added}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._rows = state["rows"].numpy().copy()
        self._num_added = state["num_added"]


class _QNetwork:
    """Values of actions in a state, [A]: one hidden layer, trained with Adam. All weights are one vector, [P]."""

    def __init__(self, num_actions: int, lr: float, random: np.random.Generator) -> None:
        self._num_actions, self._lr = num_actions, lr
        self._weights = np.zeros(2 * HIDDEN_UNITS + (HIDDEN_UNITS + 1) * num_actions)
        self._weights[: 2 * HIDDEN_UNITS] = random.uniform(-1, 1, 2 * HIDDEN_UNITS)
        self._target = self._weights.copy()
        self._mean, self._square = np.zeros_like(self._weights), np.zeros_like(self._weights)
        self._num_steps = 0

    def values(self, states: FloatArray) -> FloatArray:
        """Values of actions, [M, A], in states [M], by the target network."""
        return self._forward(self._target, states)[1]

    def fit(
        self, states: FloatArray, actions: IntArray, rewards: FloatArray, next_states: FloatArray, *, gamma: float
    ) -> None:
        """Take a step towards rewards plus discounted values of the next states, [M] each."""
        targets = rewards + gamma * self.values(next_states).max(1)
        hidden, values = self._forward(self._weights, states)
        rows = np.arange(len(states))
        errors = values[rows, actions] - targets
        gradient = np.zeros_like(values)
        gradient[rows, actions] = errors.clip(-1, 1) / len(states)  # Huber loss
        self._step(self._backward(states, hidden, gradient))
        self._target += _TARGET_UPDATE_RATE * (self._weights - self._target)

    def _parts(self, weights: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Weights into the hidden layer [H], its bias [H], weights out of it [H, A], their bias [A]."""
        end = (2 + self._num_actions) * HIDDEN_UNITS
        out = weights[2 * HIDDEN_UNITS : end].reshape(HIDDEN_UNITS, self._num_actions)
        return weights[:HIDDEN_UNITS], weights[HIDDEN_UNITS : 2 * HIDDEN_UNITS], out, weights[end:]

    def _forward(self, weights: FloatArray, states: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The hidden layer [M, H] and the values [M, A]."""
        into, bias, out, out_bias = self._parts(weights)
        hidden = np.tanh(states[:, None] * into + bias)
        return hidden, hidden @ out + out_bias

    def _backward(self, states: FloatArray, hidden: FloatArray, gradient: FloatArray) -> FloatArray:
        """The gradient of all weights, [P], from that of the values, [M, A]."""
        out = self._parts(self._weights)[2]
        inner = gradient @ out.T * (1 - hidden * hidden)
        return np.concatenate([states @ inner, inner.sum(0), (hidden.T @ gradient).ravel(), gradient.sum(0)])

    def _step(self, gradient: FloatArray) -> None:
        self._num_steps += 1
        self._mean += (1 - _MEAN) * (gradient - self._mean)
        self._square += (1 - _SQUARE) * (gradient * gradient - self._square)
        mean = self._mean / (1 - _MEAN**self._num_steps)
        square = self._square / (1 - _SQUARE**self._num_steps)
        self._weights -= self._lr * mean / (np.sqrt(square) + _TINY)

    def state_dict(self) -> dict[str, Any]:
        arrays = {"weights": self._weights, "target": self._target, "mean": self._mean, "square": self._square}
        return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()} | {"num_steps": self._num_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        names = "weights", "target", "mean", "square"
        self._weights, self._target, self._mean, self._square = (state[name].numpy().copy() for name in names)
        self._num_steps = state["num_steps"]


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise OptionError(f"{name} must be at least 1, not {count}")


def _check_shares(**shares: float) -> None:
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise OptionError(f"{name} must be between 0 and 1, not {share}")
