"""A placement of your own, trained on two ranks: ``python examples/add_a_strategy.py``.

A choice on an axis is a frozen dataclass: its fields are its options, ``gives`` and ``needs`` say what it goes together
with, and a plan takes it as it takes ours. The processes that train get it from here, with the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

import strobe
from strobe.engine import Settings
from strobe.graph import DynamicGraph
from strobe.graph.synthetic import Social
from strobe.placement import Placed, Placement, Work
from strobe.placement.loads import loads_of_nodes
from strobe.presets import preset
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class Dealt(Placement):
    """Nodes from the busiest to the quietest, dealt to the ranks like cards, so that none has all the hubs.

    ``back``: every other round from the last rank to the first. Edges are cut as it comes.
    """

    name: ClassVar[str] = "dealt"
    back: bool = True

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("whole sequences",)  # a node is on one rank for all time

    def place(
        self, graph: DynamicGraph, windows: Sequence[range], num_ranks: int, *, seed: int = 0, work: Work | None = None
    ) -> Placed:
        del work
        busiest = np.argsort(-loads_of_nodes(graph), kind="stable")
        turn, place = np.divmod(np.arange(graph.num_nodes), num_ranks)
        of_node = np.empty(graph.num_nodes, np.int64)
        of_node[busiest] = np.where(self.back & (turn % 2 == 1), num_ranks - 1 - place, place)
        return Placed.by_node(num_ranks, of_node, len(graph))


def main(nodes: int = 300, epochs: int = 10) -> dict[int, float]:
    """Trains on one rank, then on two; the last loss by number of ranks."""
    graph = Social(nodes=nodes, snapshots=16, edges=5 * nodes).write()
    plan = replace(preset("pts"), placement=Dealt())  # rows of neighbours travel; sequences are whole, states stay
    settings = Settings(epochs=epochs, precision="float64")
    runs = {
        ranks: strobe.train(graph, "wd-gcn", model_options={"layers": 2}, plan=plan, ranks=ranks, settings=settings)
        for ranks in (1, 2)
    }
    losses = {ranks: float(run.history[-1]["loss"]) for ranks, run in runs.items()}
    print(runs[2].summary())
    print("\nloss:", ", ".join(f"{loss:.9f} on {ranks}" for ranks, loss in losses.items()))
    return losses


if __name__ == "__main__":
    main()
