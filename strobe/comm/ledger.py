"""The ledger: every byte on the wire, second and cell of a rank, counted at one place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter, process_time
from typing import Any

PEAKS = ("memory_bytes", "device_bytes")

Slot = tuple[str, int, int, float, float]
"""Phase, number of the relayed time stage, slot of its pipeline, began, ended: on a clock that all processes of a
machine share."""

Ran = tuple[int, int, float, float]
"""Step, batch (``AGREEING`` for what follows the batches of a step), began, ended: on the same clock."""

AGREEING = -1

_MOMENTS = ("slots", "ran")


class Ledger:
    """What one rank did since the last ``cut``.

    Bytes are payload, by phase and kind (halo, relay, shuffle, gradients, …); ``spared`` are those that a fresh
    exchange would have sent in a stale one's place, so that both together are what it would have cost.

    Seconds: ``exposed`` is spent waiting for rows, states or gradients of others, ``waiting`` for numbers that merely
    agree on something (it is there that the uneven load of ranks shows), ``hidden`` is the time messages travelled
    while this rank computed; what remains of a phase is its own work. ``slots`` tells when each part of each relayed
    time stage ran, ``ran`` when each batch did.
    """

    def __init__(self) -> None:
        self.phase_now = "prepare"
        self.step_now = 0
        self.epoch_now = 0
        self.alone_now = False
        self.watch: Callable[[int, int, str, bool], None] | None = None
        self.clear()

    def clear(self) -> None:
        """Begins anew."""
        self.sent: dict[tuple[str, str], int] = defaultdict(int)
        self.received: dict[tuple[str, str], int] = defaultdict(int)
        self.rows_sent: dict[tuple[str, str], int] = defaultdict(int)
        self.messages: dict[tuple[str, str], int] = defaultdict(int)
        self.spared: dict[tuple[str, str], int] = defaultdict(int)
        self.rows_spared: dict[tuple[str, str], int] = defaultdict(int)
        self.seconds: dict[str, float] = defaultdict(float)
        self.counts: dict[str, int] = defaultdict(int)
        self.slots: list[Slot] = []
        self.ran: list[Ran] = []
        self._stages = 0
        self._hidden_until = 0.0
        self._began, self._cpu_began = perf_counter(), process_time()

    def at(self, epoch: int, step: int) -> None:
        """A training step begins. Between its phases this rank is in phase ``train``."""
        self.epoch_now, self.step_now, self.phase_now = epoch, step, "train"
        self._tell()

    @contextmanager
    def phase(self, name: str, *, alone: bool = False) -> Iterator[None]:
        """Everything inside is counted under this phase. ``alone``: all other ranks wait for this one, without a
        deadline."""
        before = self.phase_now, self.alone_now
        self.phase_now, self.alone_now = name, alone
        self._tell()
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += perf_counter() - start
            self.phase_now, self.alone_now = before
            self._tell()

    def _tell(self) -> None:
        """Whoever watches this rank from outside learns where it is: it may not be able to say so later."""
        if self.watch is not None:
            self.watch(self.epoch_now, self.step_now, self.phase_now, self.alone_now)

    def count_sent(self, kind: str, num_bytes: int, rows: int) -> None:
        key = (self.phase_now, kind)
        self.sent[key] += num_bytes
        self.rows_sent[key] += rows
        self.messages[key] += 1

    def count_received(self, kind: str, num_bytes: int) -> None:
        self.received[(self.phase_now, kind)] += num_bytes

    def count_spared(self, kind: str, num_bytes: int, rows: int) -> None:
        """Rows that did not have to be sent: the other side has them, or nearly."""
        key = (self.phase_now, kind)
        self.spared[key] += num_bytes
        self.rows_spared[key] += rows

    def count_hidden(self, since: float) -> None:
        """A message has been on its way since then, until now; what several share counts once."""
        now = perf_counter()
        self.seconds["hidden"] += now - min(max(since, self._hidden_until), now)
        self._hidden_until = now

    def waited(self) -> None:
        """A wait is over: what it took was not hidden."""
        self._hidden_until = perf_counter()

    def count(self, **counts: int) -> None:
        """Cells, arcs, rows: what was computed or loaded."""
        for name, number in counts.items():
            self.counts[name] += number

    def ran_slot(self, stage: int, slot: int, began: float) -> None:
        """A part of a relayed time stage has run, until now."""
        self.slots.append((self.phase_now, stage, slot, began, perf_counter()))

    def ran_batch(self, batch: int, began: float) -> None:
        """A batch of this step has run, there and back, until now; or ranks have agreed."""
        self.ran.append((self.step_now, batch, began, perf_counter()))

    def next_stage(self) -> int:
        """The number of the relayed time stage that begins now."""
        self._stages += 1
        return self._stages

    def cut(self) -> dict[str, Any]:
        """All of it as JSON, and a new beginning."""
        told = {
            "sent": _named(self.sent),
            "received": _named(self.received),
            "rows_sent": _named(self.rows_sent),
            "messages": _named(self.messages),
            "spared": _named(self.spared),
            "rows_spared": _named(self.rows_spared),
            "seconds": {name: round(value, 6) for name, value in self.seconds.items()},
            "total_s": round(perf_counter() - self._began, 6),
            "cpu_s": round(process_time() - self._cpu_began, 6),
            "slots": self.slots,
            "ran": self.ran,
            **dict(self.counts),
        }
        self.clear()
        return told


def _named(counts: dict[tuple[str, str], int]) -> dict[str, int]:
    return {f"{phase}/{kind}": number for (phase, kind), number in sorted(counts.items())}


def merged(ledgers: list[dict[str, Any]]) -> dict[str, Any]:
    """Ledgers of one rank's epochs added up; of memory the most it ever held."""
    total: dict[str, Any] = {}
    for ledger in ledgers:
        for name, value in ledger.items():
            if name in _MOMENTS:
                continue  # when things ran adds up to nothing
            if isinstance(value, dict):
                into = total.setdefault(name, {})
                for key, number in value.items():
                    into[key] = into.get(key, 0) + number
            elif name in PEAKS:
                total[name] = max(total.get(name, 0), value)
            else:
                total[name] = total.get(name, 0) + value
    return total
