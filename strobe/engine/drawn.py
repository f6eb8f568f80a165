"""Batches that a rank draws while it trains: of which size, which one, made beside training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from strobe.batching.drawing import Size, draw
from strobe.batching.learner import Learner
from strobe.batching.reservoir import Reservoir
from strobe.engine.checkpoint import restoring
from strobe.engine.nest import is_like
from strobe.engine.windows import Window
from strobe.errors import FormatError
from strobe.placement.load_aware import balanced_groups

if TYPE_CHECKING:
    from strobe.comm import Comm
    from strobe.engine.checkpoint import State
    from strobe.engine.job import Job
    from strobe.engine.sampled import SampledSteps
    from strobe.engine.sliding import Sliding

_WAITING = 16
"""Batches, of all sizes together, that wait for the first step."""

_SIZES, _BATCHES, _TAKEN, _LEARNER = 11, 12, 13, 14
"""What random numbers are for: streams of their own."""


class Drawn:
    """One rank's batches. All ranks must make theirs: rank 0 says how many steps an epoch has."""

    def __init__(self, job: Job) -> None:
        drawing, hand, times = job.plan.batching.drawing, job.at_hand, job.problem.split.train
        assert drawing is not None
        comm, seed = job.comm, job.settings.seed
        self._ledger = comm.ledger
        counts = len(times), len(hand.own)
        candidates: list[int] = comm.share(drawing.candidates(*counts), kind="setup")
        self.sizes: list[Size] = drawing.sizes(*counts, candidates)
        self.num_steps: int = comm.share(drawing.num_steps(*counts), kind="setup")
        placed = job.sharing.placed
        loads = None if placed is None else placed.loads
        groups = [hand.own] if loads is None else balanced_groups(hand.own, loads, drawing.groups)

        def make(kind: int, number: int) -> Window:
            where = seed, comm.rank, _BATCHES, kind, number
            return hand.ready(draw(times, groups, self.sizes[kind], hand.cache.reading.hops, where))

        self._reservoir: Reservoir[Window] = Reservoir(
            make,
            drawing.capacities(*counts, candidates),
            seed=(seed, comm.rank, _TAKEN),
            limit=drawing.memory * 2**20,
            num_bytes=hand.num_bytes,
        )
        self._reservoir.first(-(-_WAITING // len(self.sizes)))
        self._random = np.random.default_rng([seed, comm.rank, _SIZES]) if drawing.chosen == "random" else None
        learns = drawing.chosen == "learned" and len(self.sizes) > 1
        self._learner = Learner(len(self.sizes), seed=seed + _LEARNER) if learns else None
        self.kind = 0 if self._learner is None else self._learner.action
        """The size of the next batch."""

    @property
    def learns(self) -> bool:
        """Whether a learner chooses sizes: that of rank 0, for all."""
        return self._learner is not None

    def start(self) -> None:
        """Begins to make batches."""
        self._reservoir.start()

    def next(self) -> tuple[int, Window]:
        """The size and the window of the next batch."""
        if self._random is not None:
            self.kind = int(self._random.integers(len(self.sizes)))
        with self._ledger.phase("draw"):
            window, _ = self._reservoir.take(self.kind)
        self._ledger.seconds["drawn beside"] += self._reservoir.hidden()
        return self.kind, window

    def trained(self, loss: float, seconds: float) -> None:
        """What came of the last batch; the learner of rank 0 chooses the next size."""
        if self._learner is not None:
            self.kind = self._learner.learn(loss, seconds)

    def remembered(self) -> dict[str, Any]:
        """All that says which batches come next, as plain values and tensors."""
        return {
            "reservoir": self._reservoir.remembered(),
            "random": None if self._random is None else self._random.bit_generator.state,
            "learner": None if self._learner is None else self._learner.remembered(),
            "kind": self.kind,
        }

    def recall(self, found: dict[str, Any]) -> None:
        """Goes on from what was remembered."""
        self._reservoir.recall(found["reservoir"])
        if self._random is not None:
            self._random.bit_generator.state = found["random"]
        if self._learner is not None:
            self._learner.recall(found["learner"])
        if not 0 <= found["kind"] < len(self.sizes):
            raise FormatError(f"the checkpoint's batches are damaged: there is no size {found['kind']}")
        self.kind = found["kind"]

    def close(self) -> None:
        """Makes no more."""
        self._reservoir.close()


@contextmanager
def making(later: Drawn | Sliding | SampledSteps | None, state: State, comm: Comm) -> Iterator[None]:
    """Windows are made while what is inside happens; they go on from where a run that is resumed had come to, on as
    many ranks, else anew."""
    if later is None:
        yield
        return
    found, state.drawn = state.drawn, None
    if found is not None and len(found) == comm.num_ranks:
        with restoring("the checkpoint's batches"):
            if not is_like(found[comm.rank], later.remembered()):
                raise FormatError("the checkpoint's batches are damaged: names or types differ from this run's")
            later.recall(found[comm.rank])
    later.start()
    try:
        yield
    finally:
        later.close()
