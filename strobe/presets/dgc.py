"""DGC: chunks of cells, fused, and rows that travel only when they have moved."""

from __future__ import annotations

from strobe.batching import Fused
from strobe.exchange import Exchange, Stale, StaleTime
from strobe.exchange.stale import Form
from strobe.placement import Chunks
from strobe.plan import Plan
from strobe.schedule import InOrder
from strobe.store import Full as FullStore
from strobe.sync import AllReduce


def dgc(memory: float = 1024.0, share: float | None = None, form: Form = "described") -> Plan:
    """Chunks that hang together along edges and in time; rows travel when they have moved (DGC, Chen et al. 2023).

    Convolutions run in pieces of ``memory`` MiB. ``share`` of the largest move is the threshold (0: every row travels,
    exact; None: by the loss, in one of two ``form``s). See docs/presets/dgc.md.

    | axis      | choice     | in the paper | faithful or changed                                                      |
    |-----------|------------|--------------|--------------------------------------------------------------------------|
    | store     | full       |              | nothing said                                                             |
    | placement | chunks     | 4.1, 4.2     | changed: chunks merge level by level, METIS assigns them, cells may move |
    | batching  | fused      | 5.1.1        | faithful; memory is measured on a few chunks, not in a whole epoch       |
    | structure | stale      | 5.2          | both readings of equation 6; gradients stay behind with their rows       |
    | time      | stale      | 5.2          | rows of attention; states are relayed, fresh                             |
    | schedule  | in-order   |              | nothing said                                                             |
    | sync      | all-reduce | 3            | faithful                                                                 |
    """
    return Plan(
        store=FullStore(),
        placement=Chunks(loads="predicted"),
        batching=Fused(memory=memory),
        exchange=Exchange(structure=Stale(share=share, form=form), time=StaleTime(share=share, form=form)),
        schedule=InOrder(),
        sync=AllReduce(),
    )
