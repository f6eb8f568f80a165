"""What every rank of a plan computes and sends, counted for all at once: a thousand cost little more than four."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from strobe.engine.flows import (
    Flow,
    carried_rows,
    in_one,
    moved_rows,
    one_by_one,
    read_rows,
    relayed,
    shuffled_rows,
    together,
)
from strobe.engine.trace import Call
from strobe.exchange import Exchange, Relay, Shuffle
from strobe.exchange.legs import NOBODY
from strobe.graph import DynamicGraph
from strobe.ops.csr import IntArray
from strobe.placement import Placed
from strobe.view import Owners
from strobe.view.share import Homes, Reads


@dataclass(frozen=True, eq=False)
class Traffic:
    """What every rank computes, sends and receives in a pass over one window, there and back; bytes are payload.

    A message is what one rank tells another in one exchange on one way; states that are relayed go group by group and
    wave by wave. ``waves`` is the most legs that a sequence has within the window, where states are relayed; 1 where
    nothing is cut. Kinds that nobody sends are left out.
    """

    cells: IntArray  # [T, W]
    arcs: IntArray  # [T, W], that end in them
    sent: dict[str, IntArray]  # kind -> [W], bytes
    received: dict[str, IntArray]  # kind -> [W], bytes
    messages: dict[str, IntArray]  # kind -> [W], sent
    waves: int = 1


def traffic(
    graph: DynamicGraph,
    placed: Placed,
    exchange: Exchange,
    times: range,
    calls: Sequence[Call],
    *,
    home: Homes,
    item_bytes: int = 4,
    carries: bool = False,
    chosen: Sequence[npt.NDArray[np.bool_]] | None = None,
) -> Traffic:
    """What all ranks do in a pass over snapshots ``times``: for each of them what ``predicted`` says of it alone.

    A stale exchange sends this in its first pass. Cost: a few numpy calls for each snapshot, and memory for the arcs
    of one snapshot and some numbers for each node, each snapshot and rank, each two ranks, each message of a relay.

    Args:
        graph: whose cells they are.
        placed: who owns them, and, where cells are shuffled, their sequences.
        exchange: how rows and states travel.
        times: the window.
        calls: how the model uses a view of it.
        home: where each node's state is before the window, [N]; -1 where there is none.
        item_bytes: of a number.
        carries: whether states come from a window before, without gradients.
        chosen: which cells of each snapshot take part; None: all.
    """
    owners = Owners(graph, placed, times, chosen)
    window = _Window(owners, exchange, home)
    tally = _Tally(placed.num_ranks, item_bytes)
    for call in calls if placed.num_ranks > 1 and not placed.replicas else ():
        if call.what == "pull" and not call.is_input:
            tally.add("halo", window.neighbours(call), call.columns)
        elif call.what == "recall":
            tally.add("state", window.handover(call), call.columns)
        elif call.what == "over_time" and not placed.whole_sequences:
            _count_time_stage(tally, window, call, carries=carries)
    cells, arcs = _sizes(owners)
    return Traffic(cells, arcs, *tally.found(), waves=tally.waves)


def _count_time_stage(tally: _Tally, window: _Window, call: Call, *, carries: bool) -> None:
    choice = window.exchange.time.fitting(call)  # type: ignore[arg-type]
    if isinstance(choice, Relay):
        cuts, waves = window.relayed(choice)
        tally.add("relay", cuts, call.state_columns)
        tally.waves = max(tally.waves, waves)
        if carries:
            tally.add("carry", window.carried, call.state_columns, learns=False)
    else:
        assert isinstance(choice, Shuffle), f"nobody has said what exchange time {choice} sends"
        tally.add("shuffle", window.shuffled, call.columns)
        tally.add("shuffle", window.shuffled.turned, call.out_columns)


class _Tally:
    """Bytes and messages of all ranks by kind, in the order in which a pass comes to them."""

    def __init__(self, num_ranks: int, item_bytes: int) -> None:
        self.waves = 1
        self._item_bytes = item_bytes
        self._nothing = np.zeros(num_ranks, np.int64)
        self._found: dict[str, tuple[IntArray, IntArray, IntArray]] = {}

    def add(self, kind: str, flow: Flow | None, columns: int, *, learns: bool = True) -> None:
        """An exchange of rows so wide; with ``learns`` gradients come back. None where nothing travels."""
        if flow is None:
            return
        row = columns * self._item_bytes
        sent, received, messages = self._found.get(kind, (self._nothing,) * 3)
        for way in (flow, flow.turned) if learns else (flow,):
            sent = sent + way.rows_sent * row
            received = received + way.rows_received * row
            messages = messages + way.messages_sent
        self._found[kind] = sent, received, messages

    def found(self) -> tuple[dict[str, IntArray], dict[str, IntArray], dict[str, IntArray]]:
        """Bytes sent, bytes received, messages sent."""
        said = {kind: found for kind, found in self._found.items() if found[2].any()}
        sent, received, messages = ({kind: found[k] for kind, found in said.items()} for k in range(3))
        return sent, received, messages


class _Window:
    """What travels in the exchanges of a window, counted when it is first asked for."""

    def __init__(self, owners: Owners, exchange: Exchange, home: Homes) -> None:
        self.owners, self.exchange, self.home = owners, exchange, home
        self.num_ranks = owners.placed.num_ranks
        self._read: dict[Reads, Flow] = {}
        self._read_each: dict[Reads, list[Flow]] = {}
        self._relayed: dict[Relay, tuple[Flow, int]] = {}

    def neighbours(self, call: Call) -> Flow | None:
        """Rows of neighbours; None where every snapshot is whole."""
        if self.owners.placed.whole_snapshots:
            return None
        reads: Reads = "out" if call.norm == "mean_out" and self.owners.graph.directed else "in"
        by_themselves = call.gives_way and self.exchange.structure.one_by_one and len(self.owners) > 1
        if call.snapshot is None and not by_themselves:
            if reads not in self._read:
                self._read[reads] = in_one(read_rows(self.owners, reads), self.num_ranks)
            return self._read[reads]
        if reads not in self._read_each:
            self._read_each[reads] = one_by_one(read_rows(self.owners, reads), self.num_ranks)
        flows = self._read_each[reads]
        return together(flows) if call.snapshot is None else flows[call.snapshot]

    def handover(self, call: Call) -> Flow | None:
        """States of models that step through time; None where every sequence is whole."""
        return None if self.owners.placed.whole_sequences else self._handovers[call.snapshot or 0]

    def relayed(self, choice: Relay) -> tuple[Flow, int]:
        """States at cuts, and the waves that this makes."""
        if choice not in self._relayed:
            self._relayed[choice] = relayed(self.owners, choice.groups)
        return self._relayed[choice]

    @cached_property
    def carried(self) -> Flow:
        """States of an earlier window."""
        return in_one(carried_rows(self.owners, self.home), self.num_ranks)

    @cached_property
    def shuffled(self) -> Flow:
        """Cells on the way to the owners of their sequences."""
        return in_one(shuffled_rows(self.owners), self.num_ranks)

    @cached_property
    def _handovers(self) -> list[Flow]:
        return one_by_one(moved_rows(self.owners, self.home), self.num_ranks)


def _sizes(owners: Owners) -> tuple[IntArray, IntArray]:
    """Cells of every snapshot and rank and the arcs that end in them, [T, W] each. Replicas have them all."""
    placed = owners.placed
    cells, arcs = np.zeros((2, len(owners), placed.num_ranks), np.int64)
    for t, (at, owner) in enumerate(zip(owners.times, owners, strict=True)):
        in_degree = owners.graph[at].in_degree
        if owners.chosen is not None:
            in_degree, owner = in_degree[owner != NOBODY], owner[owner != NOBODY]
        if placed.replicas:
            cells[t], arcs[t] = len(owner), in_degree.sum()
        else:
            cells[t] = np.bincount(owner, minlength=placed.num_ranks)
            arcs[t] = np.bincount(owner, in_degree, placed.num_ranks)  # in float64, exact up to 2**53
    return cells, arcs
