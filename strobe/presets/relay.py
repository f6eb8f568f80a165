"""Strobe's own plan: time blocks with pipelined states."""

from __future__ import annotations

from strobe.batching import Full as FullBatch
from strobe.batching import Windows
from strobe.exchange import Exchange, Halo, Relay
from strobe.placement import TimeBlocks
from strobe.plan import Plan
from strobe.schedule import InOrder
from strobe.store import Full as FullStore
from strobe.sync import AllReduce


def relay(size: int | None = None, pipeline_groups: int = 16) -> Plan:
    """Time blocks of even load; states move from rank to rank in a pipeline (ours, in no paper).

    A step has ``size`` snapshots (None: all); nodes pass through the ranks in ``pipeline_groups`` groups.

    | axis      | choice          | why                                                                         |
    |-----------|-----------------|-----------------------------------------------------------------------------|
    | store     | full            |                                                                             |
    | placement | time-blocks     | even in every window; edges are cut only in snapshots that two ranks share  |
    | batching  | full or windows | the exact gradient, or steps for graphs too large for it                    |
    | structure | halo            | only in snapshots that ranks share                                          |
    | time      | relay           | one row per node alive at a cut; G groups keep W ranks G / (G + W - 1) busy |
    | schedule  | in-order        |                                                                             |
    | sync      | all-reduce      | exact                                                                       |
    """
    return Plan(
        store=FullStore(),
        placement=TimeBlocks(),
        batching=FullBatch() if size is None else Windows(size=size),
        exchange=Exchange(structure=Halo(), time=Relay(pipeline_groups=pipeline_groups)),
        schedule=InOrder(),
        sync=AllReduce(),
    )
