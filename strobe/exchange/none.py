"""Nothing travels: snapshots are whole, or sequences are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from strobe.exchange.base import Columns, StructureExchange, TimeEncoder, TimeExchange, Timing, Window, encode
from strobe.ops.sequences import Sequences
from strobe.strategy import Fact, Need


@dataclass(frozen=True, kw_only=True)
class Nothing(StructureExchange):
    """No rows of others are needed: every snapshot is whole."""

    name: ClassVar[str] = "none"

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("fresh rows",)

    @property
    def needs(self) -> tuple[Need, ...]:
        why = "without an exchange a cell cannot read neighbours on other ranks"
        return (Need("whole snapshots", why, "exchange structure halo, or a placement that keeps snapshots whole"),)


@dataclass(frozen=True, kw_only=True)
class Stay(TimeExchange):
    """Nothing moves: every sequence is whole."""

    name: ClassVar[str] = "none"

    @property
    def needs(self) -> tuple[Need, ...]:
        why = "without an exchange a state cannot follow its node to another rank"
        fix = "exchange time relay or shuffle, or a placement that keeps sequences whole"
        return (Need("whole sequences", why, fix),)

    def start(self, window: Window) -> Timing:
        raise AssertionError("the check of a plan has seen to it that no sequence changes ranks")


class Staying(Timing):
    """The encoder on this rank's sequences, which are whole."""

    def __init__(self, sequences: Sequences) -> None:
        self.sequences = sequences

    def run(self, encoder: TimeEncoder, x: Columns, state: Any | None) -> tuple[Tensor, Any, list[Tensor]]:
        out, state = encode(encoder, x, state, self.sequences)
        return out, state, []
