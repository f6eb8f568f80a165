"""FlareDTDG: full snapshots now, ever thinner ones before."""

from __future__ import annotations

from strobe.batching import Trapezoid
from strobe.exchange import Exchange, Halo, Overlapped, Stay
from strobe.placement import Metis
from strobe.plan import Plan
from strobe.schedule import RandomSplit
from strobe.store import Full
from strobe.sync import AllReduce


def flare(full: int = 2, decayed: int = 6, keep: float = 0.1, chunks: int = 64, tune: int = 0) -> Plan:
    """A step per snapshot: ``full`` recent ones whole, ``decayed`` older ones ever thinner (FlareDTDG, Huang et al.
    2026)."""
    return Plan(
        store=Full(),
        placement=Metis(chunks=chunks),
        batching=Trapezoid(full=full, decayed=decayed, keep=keep, tune=tune),
        exchange=Exchange(structure=Overlapped(inner=Halo()), time=Stay()),
        schedule=RandomSplit(),
        sync=AllReduce(),
    )
