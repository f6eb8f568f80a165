"""The ledger: the bytes, seconds and computed cells of one rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter, process_time
from typing import Any, Protocol

PEAKS = ("memory_bytes", "device_bytes")

PipelineSpan = tuple[str, int, int, float, float]
"""Phase, number of the relayed time stage, slot of its pipeline, start, end: on a clock that all processes of a machine
share."""

BatchSpan = tuple[int, int, float, float]
"""Step, batch (``STEP_SYNC`` for the synchronization after the batches of a step), start, end: on the same clock."""

STEP_SYNC = -1

_SPANS = ("pipeline_spans", "batch_spans")


class StreamClock(Protocol):
    """Marks points in the work of a device that runs behind the host, and tells their times later."""

    def mark(self) -> Any:
        """Mark the point that the host has reached."""

    def seconds(self, mark: Any) -> float:
        """Return when the device reached a mark, on the clock of ``perf_counter``. May wait for the device."""

    def restart(self) -> None:
        """Wait for the device; marks before are not read any more."""


class Ledger:
    """Counters of one rank since the last ``drain``.

    Bytes are payload, by phase and kind (halo, relay, shuffle, gradients, ...). ``suppressed_bytes`` are bytes that a
    stale exchange did not send and a fresh exchange would have sent.

    Seconds, besides those of phases: ``exposed_comm_s`` is spent waiting for rows, states or gradients,
    ``straggler_wait_s`` waiting in collectives for other ranks (uneven load), ``overlapped_comm_s`` is the time
    messages travelled while this rank computed. The rest of a phase is computation.
    """

    def __init__(self) -> None:
        self.phase_now = "prepare"
        self.step_now = 0
        self.epoch_now = 0
        self.alone_now = False
        self.on_change: Callable[[int, int, str, bool], None] | None = None
        self.clock: StreamClock | None = None
        """StreamClock of the device that carries messages; None if the host waits for them itself."""
        self.synchronize: Callable[[], None] | None = None
        """Waits for a device that runs behind, where batches are timed."""
        self.clear()

    def clear(self) -> None:
        """Reset all counters."""
        self.sent: dict[tuple[str, str], int] = defaultdict(int)
        self.received: dict[tuple[str, str], int] = defaultdict(int)
        self.rows_sent: dict[tuple[str, str], int] = defaultdict(int)
        self.messages: dict[tuple[str, str], int] = defaultdict(int)
        self.suppressed_bytes: dict[tuple[str, str], int] = defaultdict(int)
        self.suppressed_rows: dict[tuple[str, str], int] = defaultdict(int)
        self.seconds: dict[str, float] = defaultdict(float)
        self.counts: dict[str, int] = defaultdict(int)
        self.pipeline_spans: list[PipelineSpan] = []
        self.batch_spans: list[BatchSpan] = []
        self._device_waits: list[tuple[str, Any, Any, Any]] = []
        self._stages = 0
        self._overlapped_until = 0.0
        self._start, self._cpu_start = perf_counter(), process_time()

    def at(self, epoch: int, step: int) -> None:
        """Begin a training step. Between its phases the phase is ``train``."""
        self.epoch_now, self.step_now, self.phase_now = epoch, step, "train"
        self._notify()

    @contextmanager
    def phase(self, name: str, *, alone: bool = False) -> Iterator[None]:
        """Count everything inside the block under this phase.

        Args:
            name: the phase.
            alone: all other ranks wait for this rank, without a deadline.
        """
        before = self.phase_now, self.alone_now
        self.phase_now, self.alone_now = name, alone
        self._notify()
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += perf_counter() - start
            self.phase_now, self.alone_now = before
            self._notify()

    def _notify(self) -> None:
        """Publish the position now: a rank that hangs or is killed cannot report it later."""
        if self.on_change is not None:
            self.on_change(self.epoch_now, self.step_now, self.phase_now, self.alone_now)

    def count_sent(self, kind: str, num_bytes: int, rows: int) -> None:
        """Count one sent message."""
        key = (self.phase_now, kind)
        self.sent[key] += num_bytes
        self.rows_sent[key] += rows
        self.messages[key] += 1

    def count_received(self, kind: str, num_bytes: int) -> None:
        """Count received bytes."""
        self.received[(self.phase_now, kind)] += num_bytes

    def count_suppressed(self, kind: str, num_bytes: int, rows: int) -> None:
        """Count rows that were not sent because the receiver's stale copy is close enough."""
        key = (self.phase_now, kind)
        self.suppressed_bytes[key] += num_bytes
        self.suppressed_rows[key] += rows

    def count_overlapped(self, since: float) -> None:
        """Count the time from ``since`` until now as overlapped; the union of several messages counts once."""
        now = perf_counter()
        self.seconds["overlapped_comm_s"] += now - min(max(since, self._overlapped_until), now)
        self._overlapped_until = now

    def end_wait(self) -> None:
        """End a wait, whose time does not count as overlapped."""
        self._overlapped_until = perf_counter()

    def now(self) -> Any:
        """Mark this point in the computation, for ``count_wait`` and ``record_pipeline_span``."""
        return perf_counter() if self.clock is None else self.clock.mark()

    def count_wait(self, name: str, issued: Any, needed: Any) -> None:
        """Count a wait on the device, which ends now.

        Args:
            name: of the seconds from ``needed`` until now.
            issued: when the operation was issued. From then to ``needed`` it overlapped with computation.
            needed: when the device began to wait.
        """
        self._device_waits.append((name, issued, needed, self.now()))

    def count(self, **counts: int) -> None:
        """Add to counters of computed cells and arcs, loaded rows, and others."""
        for name, number in counts.items():
            self.counts[name] += number

    def record_pipeline_span(self, stage: int, slot: int, start: Any) -> None:
        """Record a slot of a relayed time stage that began at ``start``, a result of ``now``, and ends now."""
        self.pipeline_spans.append((self.phase_now, stage, slot, start, self.now()))

    def record_batch_span(self, batch: int, start: float) -> None:
        """Record the forward and backward pass of a batch, or the synchronization of a step, that ends now."""
        if self.synchronize is not None:
            self.synchronize()
        self.batch_spans.append((self.step_now, batch, start, perf_counter()))

    def next_stage(self) -> int:
        """Number the relayed time stage that begins now."""
        self._stages += 1
        return self._stages

    def drain(self) -> dict[str, Any]:
        """Return all counters as JSON values and reset them."""
        self._read_clock()
        counters = {
            "sent": _flatten_keys(self.sent),
            "received": _flatten_keys(self.received),
            "rows_sent": _flatten_keys(self.rows_sent),
            "messages": _flatten_keys(self.messages),
            "suppressed_bytes": _flatten_keys(self.suppressed_bytes),
            "suppressed_rows": _flatten_keys(self.suppressed_rows),
            "seconds": {name: round(value, 6) for name, value in self.seconds.items()},
            "total_s": round(perf_counter() - self._start, 6),
            "cpu_s": round(process_time() - self._cpu_start, 6),
            "pipeline_spans": self.pipeline_spans,
            "batch_spans": self.batch_spans,
            **dict(self.counts),
        }
        self.clear()
        return counters

    def _read_clock(self) -> None:
        """Turn the marks of a device into seconds."""
        if self.clock is None:
            return
        seconds, until = self.clock.seconds, 0.0
        spans = self.pipeline_spans
        self.pipeline_spans = [(phase, stage, slot, seconds(a), seconds(b)) for phase, stage, slot, a, b in spans]
        for name, issued, needed, done in self._device_waits:
            start_s, needed_s, done_s = seconds(issued), seconds(needed), seconds(done)
            self.seconds["overlapped_comm_s"] += max(needed_s - max(start_s, until), 0.0)
            self.seconds[name] += done_s - needed_s
            until = done_s
        self.clock.restart()


def _flatten_keys(counts: dict[tuple[str, str], int]) -> dict[str, int]:
    return {f"{phase}/{kind}": number for (phase, kind), number in sorted(counts.items())}


def merge_ledgers(ledgers: list[dict[str, Any]]) -> dict[str, Any]:
    """Add up drained ledgers of one rank; take the maximum of memory peaks, leave out spans."""
    total: dict[str, Any] = {}
    for ledger in ledgers:
        for name, value in ledger.items():
            if name in _SPANS:
                continue
            if isinstance(value, dict):
                sums = total.setdefault(name, {})
                for key, number in value.items():
                    sums[key] = sums.get(key, 0) + number
            elif name in PEAKS:
                total[name] = max(total.get(name, 0), value)
            else:
                total[name] = total.get(name, 0) + value
    return total
