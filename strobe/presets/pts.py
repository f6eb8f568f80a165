"""Partitioning by temporal sequences."""

from __future__ import annotations

from strobe.batching import Full as FullBatch
from strobe.exchange import Exchange, Halo, Stay
from strobe.placement import BySequence
from strobe.plan import Plan
from strobe.schedule import InOrder
from strobe.store import Full as FullStore
from strobe.sync import AllReduce


def pts() -> Plan:
    """Whole sequences, as many on every rank; rows of neighbours travel (partitioning by temporal sequences).

    A baseline of DGC (Chen et al., 2023).

    | axis      | choice      | in the paper | faithful or changed                                          |
    |-----------|-------------|--------------|--------------------------------------------------------------|
    | store     | full        |              | nothing said                                                 |
    | placement | by-sequence | 2.1, 2.2.2   | faithful: as many sequences each; in which order is not said |
    | batching  | full        | 3            | faithful: an epoch is one step                               |
    | structure | halo        | 1, Figure 2b | faithful; a row goes once to each rank that reads it         |
    | time      | none        | 1, Figure 2b | faithful: sequences are whole                                |
    | schedule  | in-order    |              | nothing said                                                 |
    | sync      | all-reduce  | 3            | faithful: gradients are synchronised every epoch             |
    """
    return Plan(
        store=FullStore(),
        placement=BySequence(),
        batching=FullBatch(),
        exchange=Exchange(structure=Halo(), time=Stay()),
        schedule=InOrder(),
        sync=AllReduce(),
    )
