"""Structure exchange that caches remote inputs on every rank that reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from strobe.errors import OptionError
from strobe.exchange.base import StructureExchange, describe_cache
from strobe.format import file_size
from strobe.strategy import Fact, Need


@dataclass(frozen=True, kw_only=True)
class Cached(StructureExchange):
    """Cache the k-hop neighborhood of a rank's nodes, so that training sends no rows; shared cells are recomputed.

    ``hops`` is the depth in sparse products (None: as many as the model has). Exact for models that convolve before
    they encode sequences; if a convolution reads states, or a second block the first one's, cached neighbors have a
    shorter past. Evaluation is exact and exchanges halo rows. Cost: memory, up to the whole graph on each rank; refused
    above ``memory`` MiB (None: the free memory).
    """

    name: ClassVar[str] = "cached"
    exact: ClassVar[bool] = False
    hops: int | None = None
    memory: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hops is not None and self.hops < 0:
            raise OptionError(f"hops of cached must be at least 0, not {self.hops}")
        if self.memory is not None and not self.memory > 0:
            raise OptionError(f"memory of cached must be positive, not {self.memory} MiB")

    @property
    def needs(self) -> tuple[Need, ...]:
        why = "a rank caches all cells of its nodes"
        return (Need("whole sequences", why, "placement load-aware, hash or metis, or exchange structure halo"),)

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("local inputs",)

    def cache_hops(self, hops: int) -> int:
        return hops if self.hops is None else min(self.hops, hops)

    def check_cache_size(self, num_bytes: int, free_bytes: int, hops: int) -> None:
        limit = free_bytes if self.memory is None else int(self.memory * 2**20)
        if num_bytes <= limit:
            return
        fixes = [f"cache fewer hops (--structure cached:hops={hops - 1})"] if hops else []
        fixes += ["use more ranks", "exchange rows (--structure halo, with batching full or windows)"]
        fixes += [] if self.memory is None else ["raise memory (in MiB)"]
        raise OptionError(
            f"{describe_cache(hops)} takes {file_size(num_bytes)}, but only {file_size(limit)} are free: "
            f"{', '.join(fixes[:-1])}, or {fixes[-1]}"
        )
