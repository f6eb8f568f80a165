"""FlareDTDG: full recent snapshots, decaying older ones."""

from __future__ import annotations

from strobe.batching import Trapezoid
from strobe.exchange import Exchange, Halo, NoTimeExchange, Overlapped
from strobe.placement import Metis
from strobe.plan import Plan
from strobe.schedule import RandomSplit
from strobe.store import Full
from strobe.sync import AllReduce


def flare(
    full: int = 1,
    decayed: int = 7,
    min_keep: float = 0.02,
    chunks: int = 64,
    overlap: bool = True,
    search_every: int = 0,
) -> Plan:
    """Full recent snapshots, decaying older ones; overlapped exchange (FlareDTDG, Huang et al. 2026).

    A step per snapshot: the last ``full`` snapshots in full, and of the ``decayed`` ones before them fewer and fewer of
    ``chunks`` chunks per rank, down to a share ``min_keep``. ``overlap``: rows of one snapshot are sent while others
    compute. ``search_every``: epochs between searches of nearby settings (3.5). See docs/presets/flare.md.

    | axis      | choice       | in the paper | faithful or changed                                                |
    |-----------|--------------|--------------|--------------------------------------------------------------------|
    | store     | full         |              | not specified                                                      |
    | placement | metis        | 3.2          | chunks within ranks, so that a rank's nodes are connected          |
    | batching  | trapezoid    | 3.2, 3.3     | changed: blocks are views; inputs are aggregated in full; see page |
    | structure | overlapped   | 3.4          | changed: seconds predicted by a line, not a small network          |
    | time      | none         |              | sequences are whole                                                |
    | schedule  | random-split | 3.2          | the first epoch is not split: there are no states to continue from |
    | sync      | all-reduce   |              | faithful                                                           |
    """
    return Plan(
        store=Full(),
        placement=Metis(chunks=chunks),
        batching=Trapezoid(full=full, decayed=decayed, min_keep=min_keep, search_every=search_every),
        exchange=Exchange(structure=Overlapped(inner=Halo()) if overlap else Halo(), time=NoTimeExchange()),
        schedule=RandomSplit(),
        sync=AllReduce(),
    )
