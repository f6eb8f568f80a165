"""The states before earlier snapshots, from which online training trains on them again."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np
import torch

from strobe.ops.sparse.csr import IntArray
from strobe.view import Carry

_REPLAY = 32
"""Number of this random stream, which no other use of the seed shares."""


class SnapshotStart(NamedTuple):
    """The states before a snapshot.

    Attributes:
        t: the snapshot.
        states: None for the initial states.
        nodes: the nodes that have a row in the states, ascending.
    """

    t: int
    states: Carry | None
    nodes: IntArray


class ReplayMemory:
    """The starts of the latest ``size`` snapshots that were trained on.

    Memory: the states of all nodes for each of them.
    """

    def __init__(self, size: int, seed: int) -> None:
        self._kept: deque[SnapshotStart] = deque(maxlen=size)
        self._seed = seed

    def add(self, start: SnapshotStart) -> None:
        """Keep the start of the snapshot that was just trained on; beyond ``size`` the oldest is dropped."""
        self._kept.append(start)

    def draw(self, number: int, t: int, step: int) -> list[SnapshotStart]:
        """``number`` distinct starts, or all if there are fewer, at random for each snapshot t and step on it."""
        rng = np.random.default_rng([self._seed, t, step, _REPLAY])
        chosen = rng.choice(len(self._kept), min(number, len(self._kept)), replace=False, shuffle=False)
        return [self._kept[k] for k in sorted(chosen.tolist())]

    def state_dict(self) -> list[dict[str, Any]]:
        """The starts as tensors and plain values."""
        return [{"t": start.t, "states": start.states, "nodes": torch.from_numpy(start.nodes)} for start in self._kept]

    def load_state_dict(self, state: list[dict[str, Any]], device: torch.device) -> None:
        """Continue with the starts of a checkpoint."""
        for each in state:
            self.add(SnapshotStart(each["t"], to_device(each["states"], device), each["nodes"].numpy()))


def to_device(states: Carry | None, device: torch.device) -> Carry | None:
    """States on a device."""
    moved: Carry | None = torch.utils._pytree.tree_map_only(torch.Tensor, lambda each: each.to(device), states)
    return moved
