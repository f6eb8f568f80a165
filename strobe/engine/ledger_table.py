"""What the ranks of a run did in an epoch, from their ledgers: the figures of the tables that people read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LedgerLine = Mapping[str, Any]
"""A rank's ledger of one epoch, or of several added up, as ``comm.ledger`` gives it."""

_CRUMB = 0.01
_TALK = ("agree", "setup", "placement", "ledger")  # what ranks tell each other to work at all


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What one rank did in a mean epoch. Computing, exposed and waiting seconds are the whole of it, with evaluation
    and saving; hidden ones passed behind computing. Memory is the peak of all epochs."""

    cells: float
    arcs: float
    computing_s: float
    exposed_s: float
    waiting_s: float
    hidden_s: float
    sent_bytes: float
    memory_bytes: int
    device_bytes: int

    @property
    def seconds(self) -> float:
        return self.computing_s + self.exposed_s + self.waiting_s

    @property
    def work(self) -> float:
        """What it costs to compute, in cells and arcs."""
        return self.cells + self.arcs

    @property
    def peak_bytes(self) -> int:
        """On the device that computes: a GPU has its own memory."""
        return self.device_bytes or self.memory_bytes


def spent(ledger: LedgerLine, epochs: int) -> Spent:
    """A mean epoch of a rank, from its ledger of so many."""
    seconds, epochs = ledger["seconds"], max(epochs, 1)
    exposed, waiting, hidden = (seconds.get(name, 0.0) / epochs for name in ("exposed", "waiting", "hidden"))
    return Spent(
        cells=ledger.get("cells", 0) / epochs,
        arcs=ledger.get("arcs", 0) / epochs,
        # Waits are not told by phase, so what remains can only be told for the whole epoch.
        computing_s=max(ledger["total_s"] / epochs - exposed - waiting, 0.0),
        exposed_s=exposed,
        waiting_s=waiting,
        hidden_s=hidden,
        sent_bytes=sum(ledger["sent"].values()) / epochs,
        memory_bytes=ledger.get("memory_bytes", 0),
        device_bytes=ledger.get("device_bytes", 0),
    )


def sent_by_kind(ledgers: Iterable[LedgerLine], epochs: int, *phases: str) -> dict[str, float]:
    """Bytes that all ranks send in a mean epoch, in some phases or in all, by kind; the most first."""
    found: dict[str, float] = defaultdict(float)
    for ledger in ledgers:
        for key, num_bytes in ledger["sent"].items():
            phase, _, kind = key.partition("/")
            if not phases or phase in phases:
                found[kind] += num_bytes / max(epochs, 1)
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def matters(kinds: Mapping[str, float]) -> list[str]:
    """The kinds that a plan is judged by: not what ranks say merely to work together, nor what is hardly anything."""
    least = sum(kinds.values()) * _CRUMB
    return [kind for kind, num_bytes in kinds.items() if num_bytes and num_bytes >= least and kind not in _TALK]


def load(values: Sequence[float]) -> float | None:
    """How much the fullest rank has for 1 of the emptiest; None where that has nothing."""
    return max(values) / min(values) if values and min(values) > 0 else None
