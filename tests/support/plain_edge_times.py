"""Features of nodes and pairs from their definitions: every number from the list of edges, nothing kept."""

from __future__ import annotations

from math import log, log1p, sqrt

from strobe.ops.graph.edge_times import SCALES

Arc = tuple[int, int, int]
"""Source, destination, snapshot."""


def meetings(times: list[int], t: int) -> list[float]:
    known = sorted(s for s in times if s <= t)
    if not known:
        return [0.0] * (3 + len(SCALES))
    recent = [log1p(sum(s > t - scale for s in known)) for scale in SCALES]
    return [float(known[-1] == t), 1 / (1 + t - known[-1]), *recent, log1p(len(known))]


def activity(times: list[int], t: int) -> list[float]:
    known = sorted(s for s in times if s <= t)
    if not known:
        return [0.0] * (3 + len(SCALES))
    counts = [log1p(sum(s > t - scale for s in known)) for scale in (1, *SCALES)]
    return [*counts, log1p(len(known)), 1 / (1 + t - known[-1])]


def common(edges: list[Arc], t: int, s: int, d: int) -> list[float]:
    last: dict[tuple[int, int], int] = {}
    for u, v, time in edges:
        if time <= t:
            for pair in ((u, v), (v, u)):
                last[pair] = max(time, last.get(pair, 0))
    neighbors = {node: {v for u, v in last if u == node} for node in {s, d, *(end for pair in last for end in pair)}}
    shared = neighbors[s] & neighbors[d]
    return [
        log1p(len(shared)),
        sum(1 / log(1 + len(neighbors[u])) for u in shared),
        sum(1 / sqrt((1 + t - last[s, u]) * (1 + t - last[d, u])) for u in shared),
    ]


def pair_row(edges: list[Arc], t: int, s: int, d: int, *, directed: bool) -> list[float]:
    """``EdgeTimes.pair_features`` of one pair."""
    forward, backward = ([time for u, v, time in edges if (u, v) == pair] for pair in ((s, d), (d, s)))
    return [*meetings(forward, t), *(meetings(backward, t) if directed else []), *common(edges, t, s, d)]


def node_row(edges: list[Arc], t: int, node: int, *, directed: bool) -> list[float]:
    """``EdgeTimes.node_features`` of one node."""
    out, into = ([arc[2] for arc in edges if arc[end] == node] for end in (0, 1))
    return [*activity(out, t), *(activity(into, t) if directed else [])]
