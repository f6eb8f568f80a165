"""Our own."""

from __future__ import annotations

from strobe.batching import Full as FullBatch
from strobe.batching import Windows
from strobe.exchange import Exchange, Halo, Relay
from strobe.placement import TimeBlocks
from strobe.plan import Plan
from strobe.schedule import InOrder
from strobe.store import Full as FullStore
from strobe.sync import AllReduce


def relay(size: int | None = None, groups: int = 16) -> Plan:
    """Blocks of time of even load; states go from rank to rank while others compute (ours, in no paper).

    A step has ``size`` snapshots (None: all); nodes go through the ranks in ``groups``, one behind the other.

    | axis      | choice          | why                                                                             |
    |-----------|-----------------|---------------------------------------------------------------------------------|
    | store     | full            |                                                                                 |
    | placement | time-blocks     | even in every window; edges are cut only in snapshots that two ranks share       |
    | batching  | full or windows | the exact gradient, or steps for graphs too large for it                        |
    | structure | halo            | in snapshots that ranks share; elsewhere nothing travels                        |
    | time      | relay           | one row per node alive at a cut; G groups keep W ranks G / (G + W - 1) busy     |
    | schedule  | in-order        |                                                                                 |
    | sync      | all-reduce      | exact                                                                           |
    """
    return Plan(
        store=FullStore(),
        placement=TimeBlocks(),
        batching=FullBatch() if size is None else Windows(size=size),
        exchange=Exchange(structure=Halo(), time=Relay(groups=groups)),
        schedule=InOrder(),
        sync=AllReduce(),
    )
