"""DynaHB: hybrid batches without communication."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.batching import Hybrid
from strobe.batching.drawing import Chosen
from strobe.exchange import Cached, Exchange, Stay
from strobe.placement import LoadAware
from strobe.plan import Plan
from strobe.schedule import FreeRunning
from strobe.store import Full
from strobe.sync import Average


def dynahb(
    snapshots: float | Sequence[float] = (0.5, 1.0),
    vertices: float | Sequence[float] = (0.005, 0.01, 0.02, 0.05),
    sizes: Chosen = "learned",
    hops: int | None = None,
    every_s: float = 1.0,
    beside: bool = True,
) -> Plan:
    """Some vertices in some snapshots at a time, made beside training; ranks run free (DynaHB, Song et al. 2024).

    ``snapshots`` and ``vertices`` are shares of all; of several a learner chooses. A rank keeps what its vertices read
    within ``hops`` products (None: as many as the model has). Weights are averaged every ``every_s`` seconds; rank 0
    evaluates ``beside`` training. See docs/presets/dynahb.md.

    | axis      | choice       | in the paper | faithful or changed                                                    |
    |-----------|--------------|--------------|------------------------------------------------------------------------|
    | store     | full         |              | nothing said                                                           |
    | placement | load-aware   | 4.2, Alg. 1  | changed: dealt there and back, which is more even                      |
    | batching  | hybrid       | 5.1, 5.2     | changed: a step never waits for snapshots of all vertices; see page    |
    | structure | cached       | 4.1          | changed: aggregates of inputs are kept, which spares a hop             |
    | time      | none         | 4.1          | sequences are whole                                                    |
    | schedule  | free-running | 4.1          | faithful                                                               |
    | sync      | average      | 4.1, Alg. 2  | faithful; moments are averaged with the weights, of which nothing said |
    """
    one = isinstance(snapshots, int | float) and isinstance(vertices, int | float)
    return Plan(
        store=Full(),
        placement=LoadAware(),
        batching=Hybrid(snapshots=snapshots, vertices=vertices, sizes="fixed" if one else sizes, least=64),
        exchange=Exchange(structure=Cached(hops=hops), time=Stay()),
        schedule=FreeRunning(beside=beside),
        sync=Average(every_s=every_s),
    )
