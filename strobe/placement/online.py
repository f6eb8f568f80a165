"""Cells placed as their snapshots arrive, within the memory that ranks have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from strobe.errors import OptionError
from strobe.placement.arriving import Arriving, AsTheyArrive
from strobe.placement.priced import Price, Priced, Terms


@dataclass(frozen=True, kw_only=True)
class Online(AsTheyArrive):
    """Each snapshot is placed when it arrives, such that few neighbours have to be fetched and no rank keeps more bytes
    than it may (Zhang and Wu 2025, §4).

    A rank keeps the last ``window`` snapshots: a full row of a node that was not on it in the snapshot before, else
    what changed, one of ``segments`` segments of its columns (float32; without features, one column). In the first
    snapshot of a window all rows are full; the paper's (3a) forgets them once they leave it.

    Nodes first stay where they were; those who are new, or for whom there is no room, go to the rank with most of it.
    Then up to ``sweeps`` times all of them in turn move to the rank that pays most: edges it has, and a reward, less
    what its bytes cost. Only ranks count that have room now, and for all their nodes to stay for as long as the
    snapshot is kept; the paper asks for the first, and fills ranks up that then have no room for the next snapshot.
    Prices rise up to 2 ``eta`` times as a rank fills up. They begin at the lowest utility per byte of the snapshots so
    far, but for those without any; of the base partition, when there is none. Utility, and with it rewards, is taken
    anew before every sweep. ``price``: "marginal" charges a node for the bytes that it adds, as the paper derives;
    "printed" for all that the rank has of the snapshot, as its Algorithm 2 says.

    ``capacity``: bytes of each rank, never exceeded, also between two moves. What cannot be placed is refused. None:
    as much as is needed, found when a snapshot arrives: the largest of what it was; what a rank needs for all its nodes
    to stay; and ``slack`` times an even share of what the window takes at its fullest, if all stay, and one row. So
    ranks are about even in rows, not in arcs.

    Guarantee: utility within 2 max(1, ln(2 eta)) of the best for all snapshots, if each is improved as far as can be;
    but sweeps move single nodes, and get stuck where no rank has room for one more. Cost: a number per cell and rank,
    8 bytes, while a snapshot is placed; a sweep reads them once.
    """

    name: ClassVar[str] = "online"
    window: int = 4
    segments: int = 4
    capacity: int | None = None
    slack: float = 1.05
    sweeps: int = 300
    eta: float = 6.0
    price: Price = "marginal"

    def __post_init__(self) -> None:
        super().__post_init__()
        for what in ("window", "segments", "capacity"):
            if getattr(self, what) is not None and getattr(self, what) < 1:
                raise OptionError(f"{what} of {self.name} must be at least 1, not {getattr(self, what)}")
        if self.sweeps < 0:
            raise OptionError(f"there are at least 0 sweeps, not {self.sweeps}")
        if self.slack < 1 or self.eta < 1:
            raise OptionError(f"slack and eta of {self.name} must be at least 1, not {self.slack} and {self.eta}")

    def start(self, num_ranks: int, *, seed: int = 0) -> Arriving:
        """Nothing is kept anywhere yet. There is no lot in it, so any seed will do."""
        del seed
        return Priced(Terms(**self._options()), num_ranks)
