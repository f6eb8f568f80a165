"""Rows travel only when they have moved: whoever read a row before goes on with what it got then."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from strobe.comm import Comm
from strobe.errors import OptionError
from strobe.exchange.base import StructureExchange, TimeEncoder, TimeExchange, Timing, Window
from strobe.exchange.delivery import Courier
from strobe.exchange.halo import Halo
from strobe.exchange.overlapped import Overlapped
from strobe.exchange.relay import Relay
from strobe.exchange.sparing import Sparing
from strobe.strategy import Fact, Need, Strategy

Form = Literal["described", "printed"]
_STEEPEST = 500.0
"""Exponents beyond it change nothing any more, and would overflow."""


class _AtShareZero:
    """Exact is a choice that never holds a row back; the class as such is not."""

    def __get__(self, choice: WhenMoved | None, kind: type) -> bool:
        return choice is not None and choice.share == 0


@dataclass(frozen=True, kw_only=True)
class WhenMoved(Strategy):
    """When a row is sent again: once it is at least theta away from what was last sent.

    theta is ``share`` of D, the largest such distance in this exchange, on all ranks: 0 sends every row, above 1 none
    is sent after the first pass. Without a share it adapts to the loss (Chen et al. 2023, equation 6):
    D / (1 + exp(s (l_1 - l) / |l_1|)), l_1 the loss of the first epoch, l of the last. ``form`` printed takes s = 1, as
    the equation has it: theta shrinks from D / 2 while the loss falls. described takes s = -1: theta grows, as the
    paper's text says.
    """

    name: ClassVar[str] = "stale"
    exact: ClassVar[bool] = _AtShareZero()  # type: ignore[assignment]
    share: float | None = None
    form: Form = "described"
    fresh: Strategy

    @property
    def needs(self) -> tuple[Need, ...]:
        return self.fresh.needs

    @property
    def gives(self) -> tuple[Fact, ...]:
        return tuple(fact for fact in self.fresh.gives if fact != "fresh rows")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share is not None and self.share < 0:
            raise OptionError(
                f"share of {self.name} is a part of the largest distance: at least 0, which sends every row, or none, "
                f"which adapts it to the loss, not {self.share:g}"
            )

    def part_of_furthest(self, first_loss: float | None, last_loss: float | None) -> float:
        """theta / D, from the losses of the first epoch and of the last; None before there are any."""
        if self.share is not None:
            return self.share
        if not first_loss or last_loss is None:
            return 0.5
        fallen = (first_loss - last_loss) / abs(first_loss)
        steep = fallen if self.form == "printed" else -fallen
        return 1 / (1 + math.exp(min(max(steep, -_STEEPEST), _STEEPEST)))

    def _check_fresh(self, fresh: Strategy, stage: type[Strategy]) -> None:
        if not isinstance(fresh, stage) or isinstance(fresh, WhenMoved):
            raise OptionError(f"fresh of {self.name} must be another exchange of the same stage, not {fresh}")
        if isinstance(fresh, Overlapped):
            raise OptionError("rows that were held back cannot be in flight: put overlapped around stale, inner=stale")


@dataclass(frozen=True, kw_only=True)
class Stale(WhenMoved, StructureExchange):
    """Rows of neighbours, sent again only when they have moved far enough since they were last sent.

    Readers go on with the row they have, which is less than theta (see ``WhenMoved``) away from what the owner has now
    (Chen et al. 2023, section 5.2). A row that did not travel is a constant: no gradient comes back for it. Exact at
    share 0. Evaluation is fresh, as ``fresh`` is, and so is the first pass over each window, also of a run that is
    resumed with another number of ranks, other owners or other segments.

    Cost: what ``fresh`` costs for rows that travel; a bit per row that might, one small agreement of all ranks per
    exchange; and in memory every row once where it is sent from, for each reader, and once where it is read.
    """

    fresh: StructureExchange = field(default_factory=Halo)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_fresh(self.fresh, StructureExchange)

    def courier(self, comm: Comm) -> Courier:
        return Sparing(comm, self.fresh.courier(comm), self.part_of_furthest)


@dataclass(frozen=True, kw_only=True)
class StaleTime(WhenMoved, TimeExchange):
    """Rows that are shuffled, sent again only when they have moved far enough, there and back.

    As ``Stale`` does it for neighbours. States that are relayed are fresh, always: they are one row per cut temporal
    edge, little already, and each is computed from the one before. So with ``fresh`` relay, recurrent encoders are
    relayed and exact, and the others, which relay shuffles, are stale.
    """

    fresh: TimeExchange = field(default_factory=Relay)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_fresh(self.fresh, TimeExchange)

    def fitting(self, encoder: TimeEncoder) -> TimeExchange:
        return self.fresh.fitting(encoder)

    def travels(self, columns: int, out_columns: int, state_columns: int) -> tuple[int, int]:
        return self.fresh.travels(columns, out_columns, state_columns)

    def start(self, window: Window) -> Timing:
        return self.fresh.start(window)  # what it sends, the window's courier takes, which is this choice's

    def courier(self, comm: Comm) -> Courier:
        return Sparing(comm, self.fresh.courier(comm), self.part_of_furthest)
