"""Partitioning by snapshots, then by sequences."""

from __future__ import annotations

from strobe.batching import Full as FullBatch
from strobe.exchange import Exchange, Nothing, Shuffle
from strobe.placement import SnapshotThenSequence
from strobe.plan import Plan
from strobe.schedule import InOrder
from strobe.store import Full as FullStore
from strobe.sync import AllReduce


def pss_ts() -> Plan:
    """Whole snapshots, then whole sequences, a shuffle between (partitioning by snapshots and sequences).

    A baseline of DGC (Chen et al., 2023).

    | axis      | choice                 | in the paper | faithful or changed                                       |
    |-----------|------------------------|--------------|-----------------------------------------------------------|
    | store     | full                   |              | nothing said                                              |
    | placement | snapshot-then-sequence | 2.1, 2.2.2   | faithful: as many of both each; in what order is not said |
    | batching  | full                   | 3            | faithful: an epoch is one step                            |
    | structure | none                   | 2.1          | faithful: snapshots are whole                             |
    | time      | shuffle                | 1, Figure 2c | faithful; results go back, for the next block             |
    | schedule  | in-order               |              | nothing said                                              |
    | sync      | all-reduce             | 3            | faithful: gradients are synchronised every epoch          |
    """
    return Plan(
        store=FullStore(),
        placement=SnapshotThenSequence(),
        batching=FullBatch(),
        exchange=Exchange(structure=Nothing(), time=Shuffle()),
        schedule=InOrder(),
        sync=AllReduce(),
    )
