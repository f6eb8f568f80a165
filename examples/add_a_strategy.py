"""A custom placement, trained on two ranks: ``python examples/add_a_strategy.py``.

A strategy is a frozen dataclass: its fields are its options, ``gives`` and ``needs`` declare what it can be combined
with, and a plan takes it like a built-in one. Training processes receive it with the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

import strobe
from strobe.engine import Settings
from strobe.graph.synthetic import Social
from strobe.placement import Partition, Placement, PlacementRequest
from strobe.placement.loads import loads_of_nodes
from strobe.presets import preset
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class SnakeOrder(Placement):
    """Assigns nodes by descending load to ranks in turn, so that no rank has all hubs.

    ``back``: every other round from the last rank to the first. Ignores edges.
    """

    name: ClassVar[str] = "snake-order"
    back: bool = True

    gives: ClassVar[tuple[Fact, ...]] = ("whole sequences",)  # each node stays on one rank

    def partition(self, request: PlacementRequest) -> Partition:
        graph, num_ranks = request.graph, request.num_ranks
        heaviest = np.argsort(-loads_of_nodes(graph), kind="stable")
        turn, rank = np.divmod(np.arange(graph.num_nodes), num_ranks)
        node_owner = np.empty(graph.num_nodes, np.int64)
        node_owner[heaviest] = np.where(self.back & (turn % 2 == 1), num_ranks - 1 - rank, rank)
        return Partition.by_node(num_ranks, node_owner, len(graph))


def main(nodes: int = 300, epochs: int = 10) -> dict[int, float]:
    """Train on one rank, then on two; returns the last loss by number of ranks."""
    graph = Social(nodes=nodes, snapshots=16, edges=5 * nodes).write()
    plan = replace(preset("pts"), placement=SnakeOrder())  # halo exchange of neighbor rows; sequences stay whole
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
