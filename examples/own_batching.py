"""A batching of your own that makes its batches while training: ``python examples/own_batching.py``.

``Recent`` trains on windows that end at random snapshots, recent ones more often. It has two parts: a frozen dataclass,
which is the choice that a plan holds, and a ``StepSource``, which makes the windows of each step on one rank. Like any
of ours it trains on several ranks, is saved and resumed, and is simulated; no file of Strobe changes.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import strobe
from strobe.batching import Batching, BatchSpec
from strobe.batching.base import SourceContext, StepSource, build_sliding_windows
from strobe.engine.job import Job
from strobe.engine.windows import Window, window_of_batch
from strobe.graph import DynamicGraph
from strobe.graph.synthetic import Social
from strobe.planner.comm.network import Network
from strobe.planner.simulate import simulate
from strobe.presets import preset
from strobe.schedule.base import Pacer


@dataclass(frozen=True, kw_only=True)
class Recent(Batching):
    """Windows of ``size`` snapshots whose last one has the targets; it is chosen half as often if it is ``half_life``
    snapshots older.

    An approximation: an epoch has as many steps as there are training snapshots, but some of them several times.
    """

    name: ClassVar[str] = "recent"
    exact: ClassVar[bool] = False
    size: int = 3
    half_life: float = 4.0

    @property
    def caches_windows(self) -> bool:
        return False  # they are built for each step

    def start(self, context: SourceContext) -> StepSource:
        return RecentSource(context.job, self)

    def batches(self, graph: DynamicGraph, times: range, *, hops: int, seed: int = 0) -> list[BatchSpec]:
        """One window per snapshot: what an epoch costs on average, for placements and the simulator."""
        del graph, hops, seed
        return build_sliding_windows(times, self.size, times.start)


class RecentSource(StepSource):
    """The windows of one rank. All ranks draw the same numbers: they share the cells of every window."""

    def __init__(self, job: Job, batching: Recent) -> None:
        self._job = job
        age = np.arange(len(job.batches))[::-1]
        weight = 0.5 ** (age / batching.half_life)
        self._share = weight / weight.sum()
        self._random = np.random.default_rng(job.settings.seed)
        self._validation = job.validation_windows()

    @property
    def steps_per_epoch(self) -> int:
        return len(self._job.batches)

    @property
    def validation_windows(self) -> Iterable[Window]:
        return self._validation

    def epoch(self, epoch: int, pacer: Pacer) -> Iterator[dict[int, Window]]:
        del epoch
        step = 0
        while pacer.more(step, self.steps_per_epoch):
            number = int(self._random.choice(len(self._share), p=self._share))
            yield {number: window_of_batch(self._job.partitioned_graph, self._job.batches[number], None)}
            step += 1

    def state_dict(self) -> dict[str, Any]:
        return {"random": self._random.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._random.bit_generator.state = state["random"]


def main(nodes: int = 300, epochs: int = 6, simulate_s: float = 2.0) -> dict[str, list[float]]:
    """Train on two ranks, once whole and once stopped and resumed, and simulate four; losses of all epochs by name."""
    graph = Social(nodes=nodes, snapshots=16, edges=5 * nodes).write()
    plan = replace(preset("pts"), batching=Recent())
    settings: dict[str, Any] = {"precision": "float64", "seed": 1}
    losses: dict[str, list[float]] = {}
    one = strobe.train(graph, "tgcn", plan=plan, epochs=epochs, **settings)
    losses["1 rank"] = [line["loss"] for line in one.history]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        strobe.train(graph, "tgcn", plan=plan, ranks=2, epochs=epochs // 2, out=out, **settings)
        run = strobe.train(graph, "tgcn", plan=plan, ranks=2, epochs=epochs, out=out, resume=True, **settings)
    losses["2 ranks, resumed"] = [line["loss"] for line in run.history]
    print(run.summary())
    for name, values in losses.items():
        print(f"{name}: loss " + " ".join(f"{value:.9f}" for value in values))
    simulation = simulate(graph, "tgcn", plans={"recent": plan}, ranks=[1, 2, 4], network=Network(), seconds=simulate_s)
    for epoch in simulation.results["recent"]:
        print(f"simulated on {epoch.num_ranks}: {epoch.epoch_s:.3f} s an epoch")
    return losses


if __name__ == "__main__":
    sys.exit(not main())
