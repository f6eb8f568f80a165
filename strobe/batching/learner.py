"""Which size of batches brings the loss down fastest: learned while training (Song et al. 2024, 5.1).

As in the paper: a deep Q network. Its state is one number, how much the loss fell last; its actions are a few sizes;
its reward says how much faster and how much further down a step went than the one before; it learns from a memory of
what it tried, and ever fewer sizes are tried by lot.

Settled otherwise:

- A step's loss is measured before its weights change, so the fall that a step brings shows in the next one's loss. The
  paper gives it to the next size; that teaches sizes how good the one before them was, and all that is left to choose
  by is seconds. Here a step is judged when the next loss is there.
- A reward compares two steps, so that it holds both ways: it is remembered twice, for the size before with the opposite
  sign. The few tries of other sizes then count double, and what a change wins the change back loses: values stay
  around 0 however little ``gamma`` discounts.
- Decisions are made by a slow mean of the weights, which jump about; a last layer that begins at 0 prefers nothing.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from strobe.errors import OptionError
from strobe.ops.csr import FloatArray, IntArray

UNITS = 8
HUGE = 1e150
"""A loss this far from 0 is as bad as one that is not a number."""

WORST = -3.0
"""The reward of a loss that is no number: no comparison comes out lower."""

_FOLLOW = 0.02  # how far the slow weights go towards the others in a step
_USUAL = 0.05  # how much the last fall counts in what is usual
_MEAN, _SQUARE, _TINY = 0.9, 0.999, 1e-8  # Adam's


def reward(*, last_seconds: float, seconds: float, last_fall: float, fall: float) -> float:
    """How much better a step was than the last one: by its seconds, -1 to 1, plus by the fall of the loss, -2 to 2.

    The paper's is ``(last_seconds - seconds) / last_seconds + (fall - last_fall) / fall``. Here each difference is
    divided by the larger of the two amounts, and 0 where both are 0. That is the same number for a step that is faster,
    and for one whose fall is the larger amount. For a step that is worse the paper's has no bounds, and where the loss
    rises (a negative fall) it praises what it should blame; here a change and the change back have opposite rewards.
    While losses fall, a reward above 0 says: the loss fell further per second than before.
    """
    if not (math.isfinite(fall) and math.isfinite(last_fall)):
        return WORST
    return _relative(last_seconds, seconds) + _relative(fall, last_fall)


def _relative(more: float, less: float) -> float:
    largest = max(abs(more), abs(less))
    return more / largest - less / largest if largest else 0.0


@dataclass
class _Step:
    """A step that was trained: by which action, chosen in which state. How far the loss fell shows in the next one."""

    action: int
    state: float
    loss: float
    seconds: float
    fall: float = math.nan


class Learner:
    """Which of a few sizes of batches brings the loss down fastest: a small deep Q network.

    For a seed, the same losses and seconds give the same actions.

    Args:
        num_actions: how many sizes there are.
        gamma: how much what follows counts beside the reward at hand.
        epsilon: how often a size is drawn by lot at first; times ``decay`` after each decision, ``least`` in the end.
        lr: of the network's steps.
        memory: experiences that are kept, two a decision.
        replay: how many of them each decision learns from.
    """

    def __init__(
        self,
        num_actions: int,
        *,
        seed: int = 0,
        gamma: float = 0.99,
        epsilon: float = 1.0,
        decay: float = 0.95,
        least: float = 0.1,
        lr: float = 0.005,
        memory: int = 512,
        replay: int = 64,
    ) -> None:
        _check_counts(num_actions=num_actions, memory=memory, replay=replay)
        _check_shares(gamma=gamma, epsilon=epsilon, decay=decay, least=least, lr=lr)
        self._num_actions, self._gamma, self._replay = num_actions, gamma, replay
        self._decay, self._least = decay, least
        self._random = np.random.default_rng(seed)
        self._network = _Network(num_actions, lr, self._random)
        self._memory = _Memory(memory)
        self._fall = _Fall()
        self._state = 0.0
        self._steps: list[_Step] = []  # the last two
        self.epsilon = epsilon
        """How often the next decision is by lot."""
        self.action = int(self._random.integers(num_actions))
        """The size to take now."""

    @property
    def best(self) -> int:
        """The size to take now if no other were ever tried."""
        return int(self._network.values(np.array([self._state])).argmax())

    def learn(self, loss: float, seconds: float) -> int:
        """The next size, given the loss before the step that was trained with this one, and that step's seconds.

        A loss that is no number is remembered as the worst of rewards for the step before it; judging goes on once
        there are two numbers again.
        """
        assert 0 <= seconds < math.inf, f"a step takes some seconds, not {seconds}"
        fall = self._judge(loss)
        self._steps = [*self._steps[-1:], _Step(self.action, self._state, loss, seconds)]
        self._state = self._fall.scaled(fall)
        if len(self._memory):
            self._network.fit(*self._memory.drawn(self._replay, self._random), gamma=self._gamma)
        by_lot = self._random.random() < self.epsilon
        self.action = int(self._random.integers(self._num_actions)) if by_lot else self.best
        self.epsilon = max(self._least, self.epsilon * self._decay)
        return self.action

    def _judge(self, loss: float) -> float:
        """Remembers what came of the step before, compared with the one before that; how far the loss fell."""
        if not self._steps:
            return math.nan
        *earlier, last = self._steps
        last.fall = _fall(last.loss, loss)
        if last.fall == -math.inf:
            self._memory.add(last.state, last.action, WORST, self._state)
        elif earlier and math.isfinite(last.fall) and math.isfinite(earlier[0].fall):
            gained = reward(
                last_seconds=earlier[0].seconds,
                seconds=last.seconds,
                last_fall=earlier[0].fall,
                fall=last.fall,
            )
            self._memory.add(last.state, last.action, gained, self._state)
            self._memory.add(last.state, earlier[0].action, -gained, self._state)
        return last.fall

    def remembered(self) -> dict[str, Any]:
        """All that says how it goes on, as plain values and tensors."""
        return {
            "num_actions": self._num_actions,
            "action": self.action,
            "epsilon": self.epsilon,
            "state": self._state,
            "steps": [asdict(step) for step in self._steps],
            "fall": asdict(self._fall),
            "random": self._random.bit_generator.state,
            "memory": self._memory.remembered(),
            "network": self._network.remembered(),
        }

    def recall(self, found: dict[str, Any]) -> None:
        """Goes on from what a learner of as many sizes remembered."""
        if found["num_actions"] != self._num_actions:
            raise OptionError(
                f"sizes were learned among {found['num_actions']}, not {self._num_actions}: "
                "go on with the same sizes, or begin anew"
            )
        self.action, self.epsilon, self._state = found["action"], found["epsilon"], found["state"]
        self._steps = [_Step(**step) for step in found["steps"]]
        self._fall = _Fall(**found["fall"])
        self._random.bit_generator.state = found["random"]
        self._memory.recall(found["memory"])
        self._network.recall(found["network"])


def _fall(before: float, after: float) -> float:
    """How far the loss fell: -inf if it is no number any more, NaN if it was none before."""
    if not abs(after) < HUGE:
        return -math.inf
    return before - after if abs(before) < HUGE else math.nan


@dataclass
class _Fall:
    """Falls of the loss as numbers between -1 and 1 that a network can tell apart: a usual one is 0.5.

    Usual is a running geometric mean of their amounts: it follows losses from thousands to millionths, and one fall out
    of all proportion moves it little.
    """

    log_usual: float = 0.0
    num: int = 0

    def scaled(self, fall: float) -> float:
        """The fall beside those so far; one that is not known is 0."""
        if math.isinf(fall):
            return -1.0
        if math.isnan(fall) or not fall:
            return 0.0
        self.num += 1
        self.log_usual += max(_USUAL, 1 / self.num) * (math.log(abs(fall)) - self.log_usual)
        return fall / (abs(fall) + math.exp(self.log_usual))


class _Memory:
    """The last experiences: state, action, reward, next state."""

    def __init__(self, size: int) -> None:
        self._rows = np.zeros((size, 4))
        self._num_added = 0

    def __len__(self) -> int:
        return min(self._num_added, len(self._rows))

    def add(self, state: float, action: int, gained: float, then: float) -> None:
        self._rows[self._num_added % len(self._rows)] = state, action, gained, then
        self._num_added += 1

    def drawn(self, num: int, random: np.random.Generator) -> tuple[FloatArray, IntArray, FloatArray, FloatArray]:
        """So many by lot: states, actions, rewards and next states, [M] each."""
        states, actions, gained, then = self._rows[random.integers(len(self), size=num)].T
        return states, actions.astype(np.int64), gained, then

    def remembered(self) -> dict[str, Any]:
        return {"rows": torch.from_numpy(self._rows.copy()), "num_added": self._num_added}

    def recall(self, found: dict[str, Any]) -> None:
        self._rows = found["rows"].numpy().copy()
        self._num_added = found["num_added"]


class _Network:
    """What each action is worth in a state, [A]: one hidden layer, Adam. All weights lie in one vector, [P]."""

    def __init__(self, num_actions: int, lr: float, random: np.random.Generator) -> None:
        self._num_actions, self._lr = num_actions, lr
        self._weights = np.zeros(2 * UNITS + (UNITS + 1) * num_actions)
        self._weights[: 2 * UNITS] = random.uniform(-1, 1, 2 * UNITS)
        self._slow = self._weights.copy()
        self._mean, self._square = np.zeros_like(self._weights), np.zeros_like(self._weights)
        self._num_steps = 0

    def values(self, states: FloatArray) -> FloatArray:
        """What actions are worth, [M, A] for states [M], by the slow weights."""
        return self._forward(self._slow, states)[1]

    def fit(self, states: FloatArray, actions: IntArray, gained: FloatArray, then: FloatArray, *, gamma: float) -> None:
        """A step towards the rewards plus what the next states are worth, [M] all."""
        wanted = gained + gamma * self.values(then).max(1)
        hidden, values = self._forward(self._weights, states)
        rows = np.arange(len(states))
        errors = values[rows, actions] - wanted
        wrong = np.zeros_like(values)
        wrong[rows, actions] = errors.clip(-1, 1) / len(states)  # no experience pulls harder than an error of 1
        self._step(self._backward(states, hidden, wrong))
        self._slow += _FOLLOW * (self._weights - self._slow)

    def _parts(self, weights: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Into the layer [H], its bias [H], out of it [H, A], that bias [A]."""
        end = (2 + self._num_actions) * UNITS
        out = weights[2 * UNITS : end].reshape(UNITS, self._num_actions)
        return weights[:UNITS], weights[UNITS : 2 * UNITS], out, weights[end:]

    def _forward(self, weights: FloatArray, states: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The hidden layer [M, H] and the values [M, A]."""
        into, bias, out, out_bias = self._parts(weights)
        hidden = np.tanh(states[:, None] * into + bias)
        return hidden, hidden @ out + out_bias

    def _backward(self, states: FloatArray, hidden: FloatArray, wrong: FloatArray) -> FloatArray:
        """The gradient of all weights, [P], from that of the values, [M, A]."""
        out = self._parts(self._weights)[2]
        inner = wrong @ out.T * (1 - hidden * hidden)
        return np.concatenate([states @ inner, inner.sum(0), (hidden.T @ wrong).ravel(), wrong.sum(0)])

    def _step(self, gradient: FloatArray) -> None:
        self._num_steps += 1
        self._mean += (1 - _MEAN) * (gradient - self._mean)
        self._square += (1 - _SQUARE) * (gradient * gradient - self._square)
        mean = self._mean / (1 - _MEAN**self._num_steps)
        square = self._square / (1 - _SQUARE**self._num_steps)
        self._weights -= self._lr * mean / (np.sqrt(square) + _TINY)

    def remembered(self) -> dict[str, Any]:
        arrays = {"weights": self._weights, "slow": self._slow, "mean": self._mean, "square": self._square}
        return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()} | {"num_steps": self._num_steps}

    def recall(self, found: dict[str, Any]) -> None:
        names = "weights", "slow", "mean", "square"
        self._weights, self._slow, self._mean, self._square = (found[name].numpy().copy() for name in names)
        self._num_steps = found["num_steps"]


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise OptionError(f"{name} is at least 1, not {count}")


def _check_shares(**shares: float) -> None:
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise OptionError(f"{name} is between 0 and 1, not {share}")
