"""What a pass will send, known before any process starts: from who owns which cell and how a model uses its view."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from strobe.comm import Alone
from strobe.comm.rows import Route
from strobe.engine.trace import Call
from strobe.exchange.relay import Relaying
from strobe.exchange.shuffle import Shuffling
from strobe.view import Share
from strobe.view.share import Reads


class Imagined(Alone):
    """One of so many ranks that do not exist: what it would send can be asked, nothing can be sent."""

    def __init__(self, rank: int, num_ranks: int) -> None:
        super().__init__()
        self.rank, self.num_ranks = rank, num_ranks


@dataclass(frozen=True)
class Sent:
    """Rows and bytes of one kind that a rank sends: on the way forward, and gradients on the way back."""

    rows: int = 0
    num_bytes: int = 0
    rows_back: int = 0
    bytes_back: int = 0

    def with_rows(self, there: int, back: int, columns: int, item_bytes: int) -> Sent:
        row = columns * item_bytes
        return Sent(
            self.rows + there, self.num_bytes + there * row, self.rows_back + back, self.bytes_back + back * row
        )


def predicted(share: Share, calls: Iterable[Call], *, item_bytes: int = 4, carries: bool = False) -> dict[str, Sent]:
    """What one rank sends in a pass over its share of a window, by kind.

    A stale exchange sends this in its first pass; later some of it, and marks to say which.

    Args:
        share: what the rank has; its comm may be imagined.
        calls: how the model uses a view (``trace.watch``).
        item_bytes: of a number.
        carries: whether states come from a window before, without gradients.
    """
    found: dict[str, Sent] = defaultdict(Sent)

    def add(kind: str, route: Route, columns: int, *, learns: bool = True) -> None:
        back = route.rows_received if learns else 0
        found[kind] = found[kind].with_rows(route.rows_sent, back, columns, item_bytes)

    singles = [share.single(t, share.home) for t in range(len(share.own))]
    for call in calls:
        if call.what == "pull" and not call.is_input:
            reads: Reads = "out" if call.norm == "mean_out" and share.graph.directed else "in"
            whose = share if call.snapshot is None else singles[call.snapshot]
            add("halo", whose.neighbours(reads).route, call.columns)
        elif call.what == "recall":
            moved = share.handovers()[call.snapshot or 0]
            if moved is not None:
                add("state", moved.route, call.columns)
        elif call.what == "over_time":
            timing = share.timing(call)  # type: ignore[arg-type]
            if isinstance(timing, Relaying):
                legs = timing.legs
                rows = legs.rows_cut, legs.rows_heard
                found["relay"] = found["relay"].with_rows(*rows, call.state_columns, item_bytes)
                if carries:
                    add("carry", timing.route, call.state_columns, learns=False)
            elif isinstance(timing, Shuffling):
                add("shuffle", timing.there, call.columns)
                add("shuffle", timing.back, call.out_columns)
    return {kind: sent for kind, sent in found.items() if sent != Sent()}
