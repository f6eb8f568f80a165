"""FlareDTDG: recent snapshots whole, older ones ever thinner."""

from __future__ import annotations

from strobe.batching import Trapezoid
from strobe.exchange import Exchange, Halo, Overlapped, Stay
from strobe.placement import Metis
from strobe.plan import Plan
from strobe.schedule import RandomSplit
from strobe.store import Full
from strobe.sync import AllReduce


def flare(
    full: int = 1, decayed: int = 7, keep: float = 0.02, chunks: int = 64, overlap: bool = True, tune: int = 0
) -> Plan:
    """Recent snapshots whole, older ones ever thinner; rows travel meanwhile (FlareDTDG, Huang et al. 2026).

    A step per snapshot: ``full`` ones up to it whole, and of ``decayed`` more before them ever fewer of ``chunks``
    chunks per rank, down to a share ``keep``. ``overlap``: rows of one snapshot travel while others compute.
    ``tune``: every so many epochs neighbouring settings are tried (3.5). See docs/presets/flare.md.

    | axis      | choice       | in the paper | faithful or changed                                                  |
    |-----------|--------------|--------------|----------------------------------------------------------------------|
    | store     | full         |              | nothing said                                                         |
    | placement | metis        | 3.2          | chunks inside ranks, so that a rank's nodes hang together            |
    | batching  | trapezoid    | 3.2, 3.3     | changed: blocks are views, and aggregates of inputs of all; see page |
    | structure | overlapped   | 3.4          | changed: a line predicts seconds, there a small network              |
    | time      | none         |              | sequences are whole                                                  |
    | schedule  | random-split | 3.2          | the first epoch is not cut, for there are no states to go on from    |
    | sync      | all-reduce   |              | faithful                                                             |
    """
    return Plan(
        store=Full(),
        placement=Metis(chunks=chunks),
        batching=Trapezoid(full=full, decayed=decayed, keep=keep, tune=tune),
        exchange=Exchange(structure=Overlapped(inner=Halo()) if overlap else Halo(), time=Stay()),
        schedule=RandomSplit(),
        sync=AllReduce(),
    )
