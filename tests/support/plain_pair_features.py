"""Pair features from their definitions: every number from the list of earlier events, nothing kept."""

from __future__ import annotations

import math
from itertools import pairwise

from strobe.protocols.events import EventStream
from strobe.protocols.pair_features import SCALES

NEVER, FLOOR = 12.0, -4.0
Event = tuple[int, int, float]


class PlainFeatures:
    """Features of (source, destination) pairs from the first ``num_read`` events of a stream."""

    def __init__(self, stream: EventStream, num_read: int) -> None:
        ends = (stream.src[:num_read], stream.dst[:num_read], stream.time[:num_read])
        self.events: list[Event] = [(int(s), int(d), float(t)) for s, d, t in zip(*ends, strict=True)]
        self.unit, self.batch = stream.batch_duration / 64, stream.batch_duration
        self.start = float(stream.time[0])

    def of(self, src: int | None = None, dst: int | None = None) -> list[int]:
        return [k for k, (s, d, _) in enumerate(self.events) if (src is None or s == src) and (dst is None or d == dst)]

    def log_time(self, since: float) -> float:
        return math.log1p(since / self.unit)

    def log_sums(self, now: float, events: list[int]) -> list[float]:
        ages = [(now - self.events[k][2]) / self.batch for k in events]
        sums = [math.fsum(math.exp(-age / scale) for age in ages) for scale in SCALES]
        return [max(math.log(each), FLOOR) if each > 0 else FLOOR for each in sums]

    def is_new(self, k: int) -> bool:
        return self.of(*self.events[k][:2])[0] == k

    def changes(self, k: int) -> bool:
        before = [j for j in self.of(src=self.events[k][0]) if j < k]
        return not before or self.events[before[-1]][1] != self.events[k][1]

    def recent(self, *, src: int | None = None, dst: int | None = None) -> list[int]:
        """Distinct partners, the last met first."""
        events = [self.events[k] for k in reversed(self.of(src, dst))]
        return list(dict.fromkeys(event[0] if src is None else event[1] for event in events))

    def last(self, src: int, dst: int) -> float:
        return self.events[self.of(src, dst)[-1]][2]

    def run(self, events: list[int], partner: int) -> int:
        """How many of the last events have the same partner."""
        run = 0
        for k in reversed(events):
            if self.events[k][partner] != self.events[events[-1]][partner]:
                break
            run += 1
        return run

    def new_rate(self, events: list[int]) -> float:
        rate = 1.0
        for k in events[1:]:
            rate = 0.8 * rate + 0.2 * self.is_new(k)
        return rate

    def pair(self, src: int, dst: int, now: float) -> list[float]:
        return [*self.met(src, dst, now), *self.dst(dst, now), *self.walks(src, dst, now)]

    def met(self, src: int, dst: int, now: float) -> list[float]:
        met, mine, its = self.of(src, dst), self.of(src=src), self.of(dst=dst)
        if not met:
            return [0.0] * 14 + [FLOOR] * 4
        times, order = [self.events[k][2] for k in met], [self.events[k][1] for k in mine]
        last_events = order[-32:]
        partners, sources = self.recent(src=src), self.recent(dst=dst)
        return [
            1.0,
            self.log_time(now - times[-1]),
            math.log1p(len(met)),
            1 / (1 + min(partners.index(dst), 32)),
            math.log1p(self.run(mine, 1)) if order[-1] == dst else 0.0,
            self.log_time((times[-1] - times[0]) / max(len(met) - 1, 1)),
            self.log_time(times[-1] - times[-2]) if len(met) > 1 else 0.0,
            self.log_time(now - times[0]),
            math.log1p(sum(1 for k in its if k > met[-1])),
            1 / (1 + min(sources.index(src), 64)),
            math.log1p(sum(a == order[-1] and b == dst for a, b in pairwise(last_events))),
            float(len(order) > 1 and order[-2] == dst),
            math.log1p(sum(self.changes(k) for k in met)),
            self.log_time(self.events[its[-1]][2] - times[-1]),
            *self.log_sums(now, met),
        ]

    def dst(self, dst: int, now: float) -> list[float]:
        its = self.of(dst=dst)
        if not its:
            return [0.0, NEVER, *[0.0] * 4, *[FLOOR] * 4]
        new = [k for k in its if self.is_new(k)]
        returns = 0.0
        for k in its:
            returns = 0.9 * returns + 0.1 * (not self.is_new(k))
        return [
            1.0,
            self.log_time(now - self.events[its[-1]][2]),
            math.log1p(len(its)),
            math.log1p(len(new)),
            len(new) / len(its),
            returns,
            *self.log_sums(now, its),
        ]

    def walks(self, src: int, dst: int, now: float) -> list[float]:
        chance = decayed = direct = forward = 0.0
        last = -math.inf
        for place, shared in enumerate(self.recent(src=src)[:8]):
            sources = self.recent(dst=shared)[:64]
            for other in sources:
                reached = self.recent(src=other)[:16]
                if other == src or dst == shared or dst not in reached:
                    continue
                weight = 1 / (1 + place)
                chance += weight / len(sources) / len(reached)
                decayed += weight * math.exp((self.last(other, dst) - now) / (SCALES[2] * self.batch))
                direct += place == 0
                steps = (reached.index(shared) if shared in reached else 16) - reached.index(dst)
                forward += weight / (1 + steps) if steps > 0 else 0.0
                last = max(last, self.last(other, dst))
        if not chance:
            return [0.0] * 6 + [NEVER]
        return [
            1.0,
            math.log1p(1000 * chance),
            math.log1p(10 * decayed),
            math.log1p(direct),
            math.log1p(10 * forward),
            math.log1p(1000 * chance / (1 + len(self.recent(dst=dst)))),
            self.log_time(now - last),
        ]

    def src(self, src: int, now: float) -> list[float]:
        mine = self.of(src=src)
        lag = self.log_time(now - (self.events[-1][2] if self.events else self.start))
        if not mine:
            return [0.0, 0.0, NEVER, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, lag, *[FLOOR] * 4]
        changes = 0.0
        for k in mine[1:]:
            changes = 0.8 * changes + 0.2 * self.changes(k)
        first, last = self.events[mine[0]][2], self.events[mine[-1]][2]
        return [
            1.0,
            math.log1p(len(mine)),
            self.log_time(now - last),
            math.log1p(len(self.recent(src=src))),
            self.new_rate(mine),
            changes,
            math.log1p(self.run(mine, 1)),
            self.log_time((last - first) / max(len(mine) - 1, 1)),
            self.log_time(now - first),
            lag,
            *self.log_sums(now, mine),
        ]
