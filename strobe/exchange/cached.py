"""Inputs of others, kept on every rank that reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from strobe.errors import OptionError
from strobe.exchange.base import StructureExchange, kept_in_words
from strobe.numbers import file_size
from strobe.strategy import Fact, Need


@dataclass(frozen=True, kw_only=True)
class Cached(StructureExchange):
    """Every rank keeps the cells of its nodes and what those read within ``hops`` products (None: as many as the model
    has), so that no row travels while it trains; what they share, ranks compute each for itself.

    Exact for models that convolve before they go along sequences. Where a convolution reads states, or a second block
    reads the first one's, cells that are only read know less of their past. Batches are judged by exact answers: then
    rows travel. Cost: memory, up to the whole graph on each rank; refused where it is more than ``memory`` MiB (None:
    than a rank has).
    """

    name: ClassVar[str] = "cached"
    exact: ClassVar[bool] = False
    hops: int | None = None
    memory: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hops is not None and self.hops < 0:
            raise OptionError(f"what is kept is 0 products away or more, not {self.hops}")
        if self.memory is not None and not self.memory > 0:
            raise OptionError(f"memory for what is kept must be positive, not {self.memory} MiB")

    @property
    def needs(self) -> tuple[Need, ...]:
        why = "a rank keeps its nodes with all their cells"
        return (Need("whole sequences", why, "placement load-aware, hash or metis, or exchange structure halo"),)

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("inputs at hand",)

    def keeps(self, hops: int) -> int:
        return hops if self.hops is None else min(self.hops, hops)

    def check_kept(self, num_bytes: int, free_bytes: int, hops: int) -> None:
        room = free_bytes if self.memory is None else int(self.memory * 2**20)
        if num_bytes <= room:
            return
        ways = [f"keep less (--structure cached:hops={hops - 1})"] if hops else []
        ways += ["take more ranks", "let rows travel (--structure halo, with batching full or windows)"]
        ways += [] if self.memory is None else ["allow more (memory, in MiB)"]
        raise OptionError(
            f"{kept_in_words(hops)} take {file_size(num_bytes)}, and there is room for {file_size(room)}: "
            f"{', '.join(ways[:-1])}, or {ways[-1]}"
        )
