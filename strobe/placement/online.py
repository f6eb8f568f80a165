"""Online placement of cells under memory limits of ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from strobe.errors import OptionError
from strobe.placement.algorithms.pricing import OnlineOptions, PriceBasedPartitioner, PriceRule
from strobe.placement.streaming import StreamingPartitioner, StreamingPlacement


@dataclass(frozen=True, kw_only=True)
class Online(StreamingPlacement):
    """Places each snapshot as it arrives, with few remote neighbors and within a memory limit per rank (Zhang and Wu
    2025, §4).

    Memory model: a rank stores the last ``window`` snapshots. A row is full if its node was not on the rank in the
    previous snapshot or the snapshot is the first of the window; otherwise one of ``segments`` segments of its columns
    changes (float32; one column without features). The paper's (3a) omits the rows that leave the window.

    Algorithm: nodes stay where they were; nodes that are new or do not fit go to the rank with most free memory. Then
    up to ``sweeps`` times each node moves to the rank with the highest payoff: local edges plus a reward minus the
    price of its bytes. A rank qualifies if it has room now and, with all its nodes staying, for as long as the snapshot
    is stored (the paper requires the former only, and may fill ranks that lack room for the next snapshot). Prices rise
    by a factor of up to 2 ``eta`` as a rank fills up, from the lowest positive utility per byte of the snapshots so far
    (initially that of the base partition). Rewards are updated before every sweep.

    Args:
        window, segments: the memory model.
        capacity: bytes per rank, never exceeded; a snapshot that does not fit raises ``InputError``. None: the maximum
            of the capacity so far, the bytes for all nodes to stay, and ``slack`` times an even share of the window at
            its peak plus one row. Ranks are then about even in rows, not in arcs.
        slack: see ``capacity``.
        sweeps: maximum number of sweeps per snapshot.
        eta: price range.
        price: "marginal" charges a node for the bytes it adds, as the paper derives; "total" for all bytes the rank has
            of the snapshot, as in the paper's Algorithm 2.

    Guarantee: utility within 2 max(1, ln(2 eta)) of the optimum over all snapshots if each is locally optimal; but
    sweeps move single nodes and stop where no rank has room for one more. Cost: 8 bytes per cell and rank while a
    snapshot is placed; a sweep reads them once.
    """

    name: ClassVar[str] = "online"
    window: int = 4
    segments: int = 4
    capacity: int | None = None
    slack: float = 1.05
    sweeps: int = 300
    eta: float = 6.0
    price: PriceRule = "marginal"

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("window", "segments", "capacity"):
            if getattr(self, option) is not None and getattr(self, option) < 1:
                raise OptionError(f"{option} of {self.name} must be at least 1, not {getattr(self, option)}")
        if self.sweeps < 0:
            raise OptionError(f"sweeps of {self.name} must be at least 0, not {self.sweeps}")
        if self.slack < 1 or self.eta < 1:
            raise OptionError(f"slack and eta of {self.name} must be at least 1, not {self.slack} and {self.eta}")

    def start(self, num_ranks: int, *, seed: int = 0) -> StreamingPartitioner:
        """Start a partitioner without snapshots. Deterministic: the seed is not used."""
        del seed
        return PriceBasedPartitioner(OnlineOptions(**self._options()), num_ranks)
