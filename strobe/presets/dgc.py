"""DGC: fused chunks of cells with stale aggregation."""

from __future__ import annotations

from strobe.batching import Fused
from strobe.exchange import Exchange, Stale, StaleTime
from strobe.exchange.stale import Adapt
from strobe.placement import Chunks
from strobe.plan import Plan
from strobe.schedule import InOrder
from strobe.store import Full as FullStore
from strobe.sync import AllReduce


def dgc(memory: float = 1024.0, threshold: float | None = None, adapt: Adapt = "grow") -> Plan:
    """Chunks connected along edges and in time; rows are sent when they have changed (DGC, Chen et al. 2023).

    Convolutions run in pieces of ``memory`` MiB. Rows are sent when they changed by more than ``threshold`` of the
    largest change (0: always, exact; None: by the loss, see ``adapt``). See docs/presets/dgc.md.

    | axis      | choice     | in the paper | faithful or changed                                                      |
    |-----------|------------|--------------|--------------------------------------------------------------------------|
    | store     | full       |              | not specified                                                            |
    | placement | chunks     | 4.1, 4.2     | changed: chunks merge level by level, METIS assigns them, cells may move |
    | batching  | fused      | 5.1.1        | faithful; memory is measured on a few chunks, not over an epoch          |
    | structure | stale      | 5.2          | both readings of equation 6; gradients of unsent rows are dropped        |
    | time      | stale      | 5.2          | rows of attention; states are always relayed                             |
    | schedule  | in-order   |              | not specified                                                            |
    | sync      | all-reduce | 3            | faithful                                                                 |
    """
    return Plan(
        store=FullStore(),
        placement=Chunks(loads="predicted"),
        batching=Fused(memory=memory),
        exchange=Exchange(
            structure=Stale(threshold=threshold, adapt=adapt), time=StaleTime(threshold=threshold, adapt=adapt)
        ),
        schedule=InOrder(),
        sync=AllReduce(),
    )
