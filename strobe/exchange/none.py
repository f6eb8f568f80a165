"""No exchange: snapshots or sequences are whole on one rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from strobe.exchange.base import (
    PartitionedWindow,
    StructureExchange,
    TimeEncoder,
    TimeExchange,
    TimeInputs,
    TimeStage,
    encode,
)
from strobe.ops.time.sequences import Sequences
from strobe.strategy import Fact, Need


@dataclass(frozen=True, kw_only=True)
class NoExchange(StructureExchange):
    """No structure exchange: every snapshot is whole on one rank."""

    name: ClassVar[str] = "none"

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("fresh rows",)

    @property
    def needs(self) -> tuple[Need, ...]:
        why = "without an exchange a cell cannot read neighbors on other ranks"
        return (Need("whole snapshots", why, "exchange structure halo, or a placement that keeps snapshots whole"),)


@dataclass(frozen=True, kw_only=True)
class NoTimeExchange(TimeExchange):
    """No time exchange: every sequence is whole on one rank."""

    name: ClassVar[str] = "none"

    @property
    def needs(self) -> tuple[Need, ...]:
        why = "without an exchange a state cannot follow its node to another rank"
        fix = "exchange time relay or shuffle, or a placement that keeps sequences whole"
        return (Need("whole sequences", why, fix),)

    def start(self, window: PartitionedWindow) -> TimeStage:
        raise AssertionError("Plan.check has made sure that no sequence changes ranks")


class LocalTimeStage(TimeStage):
    """Runs an encoder on sequences that are whole on this rank."""

    def __init__(self, sequences: Sequences) -> None:
        self.sequences = sequences

    def run(self, encoder: TimeEncoder, x: TimeInputs, state: Any | None) -> tuple[Tensor, Any, list[Tensor]]:
        out, state = encode(encoder, x, state, self.sequences)
        return out, state, []
