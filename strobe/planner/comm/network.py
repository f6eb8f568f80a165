"""Network model of a cluster: hosts with a full-duplex link each, in racks with an uplink each.

Consecutive ranks share a host, and consecutive hosts a rack; the last ones may be partly filled.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from strobe.errors import OptionError, UnknownNameError
from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.options import check_options, option_types


@dataclass(frozen=True, kw_only=True)
class Network:
    """A cluster's network; bandwidths are bytes per second.

    Attributes:
        bandwidth, latency_s: of a host's link.
        ranks_per_host: ranks that share a link.
        inside, inside_latency_s: bandwidth and latency per rank within a host.
        hosts_per_rack: None: all hosts are at one non-blocking switch.
        oversubscribed: bandwidth of all links of a rack relative to its uplink.
        all_reduce: the algorithm: gloo uses a ring, NCCL trees for small messages.
    """

    bandwidth: float = 1.25e9
    latency_s: float = 30e-6
    ranks_per_host: int = 1
    inside: float = 5e9
    inside_latency_s: float = 10e-6
    hosts_per_rack: int | None = None
    oversubscribed: float = 1.0
    all_reduce: Literal["ring", "tree"] = "ring"

    def __post_init__(self) -> None:
        check_options("a network", asdict(self), option_types(type(self)))
        for name in ("bandwidth", "inside"):
            if getattr(self, name) <= 0:
                raise OptionError(f"{name} of a network must be above 0 bytes a second, not {getattr(self, name)!r}")
        for name in ("latency_s", "inside_latency_s"):
            if getattr(self, name) < 0:
                raise OptionError(f"{name} of a network must be 0 seconds or more, not {getattr(self, name)!r}")
        for name in ("ranks_per_host", "hosts_per_rack", "oversubscribed"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise OptionError(f"{name} of a network must be at least 1, not {getattr(self, name)!r}")
        if self.hosts_per_rack is None and self.oversubscribed != 1:
            raise OptionError(
                f"oversubscribed {self.oversubscribed:g} applies to uplinks of racks, but this network has none: give "
                "hosts_per_rack"
            )

    def all_reduce_s(self, num_bytes: float, num_ranks: int) -> float:
        """Return the seconds of an all-reduce of ``num_bytes``; 0 for one rank.

        Hierarchical: within hosts, then between hosts. A level with n members takes

        - as a ring 2 (n - 1) latencies, and 2 (n - 1) / n of the bytes over the slowest link;
        - as a tree 2 ceil(log2 n) latencies, and 2 times the bytes over the slowest link.

        A host sends the bytes once, divided among its ranks. Hosts are in order, so an uplink carries as much as one
        link, and limits only if it is narrower.
        """
        if num_ranks < 1 or num_bytes < 0:
            raise ValueError(f"ranks must be at least 1 and bytes 0, not {num_ranks} and {num_bytes}")
        num_hosts = -(-num_ranks // self.ranks_per_host)
        one_rack = num_hosts <= (self.hosts_per_rack or num_hosts)
        slowest = self.bandwidth if one_rack else min(self.bandwidth, self._uplink)
        among = self._all_reduce_level_s(
            num_bytes, min(num_ranks, self.ranks_per_host), self.inside, self.inside_latency_s
        )
        return among + self._all_reduce_level_s(num_bytes, num_hosts, slowest, self.latency_s)

    def exchange_s(self, sent: IntArray, messages: IntArray, received: IntArray | None = None) -> FloatArray:
        """Return the seconds of an exchange for each rank, [W], from bytes sent, messages sent and bytes received.

        Peers are assumed uniform: of W - 1 other ranks, W - h are outside a rank's host of h ranks and W - r outside
        its rack of r ranks; bytes and messages divide accordingly. The time is

        - a latency per message, within the host or of links; a rank that only receives waits for one message;
        - plus the maximum of: bytes within the host at ``inside``; bytes that leave the host over its link; bytes that
          leave the rack over the host's share of the uplink, uplink / hosts of the rack, at most the link.

        Ranks of a host start together and share its link evenly: a rank with b bytes is done after sum over j of
        min(b, b_j) at the link's bandwidth. Directions are concurrent, the fuller one decides; ``received`` defaults
        to ``sent``.
        """
        received = sent if received is None else received
        num_ranks = len(sent)
        _check_rows(num_ranks, sent, messages, received)
        if num_ranks < 2:
            return np.zeros(num_ranks)
        host, rack = self._hosts_and_racks(num_ranks)
        beyond_host, beyond_rack = ((num_ranks - np.bincount(at)[at]) / (num_ranks - 1) for at in (host, rack))
        uplink = self._uplink_shares(host, rack)
        latency_s = beyond_host * self.latency_s + (1 - beyond_host) * self.inside_latency_s
        parts = [np.maximum(messages, received > 0) * latency_s]
        for num_bytes in (sent, received):
            inside = num_bytes * (1 - beyond_host) / self.inside
            link = self._shared_link_bytes(num_bytes * beyond_host) / self.bandwidth
            up = self._shared_link_bytes(num_bytes * beyond_rack) / uplink
            parts.append(np.maximum.reduce([inside, link, up]))
        out: FloatArray = parts[0] + np.maximum(parts[1], parts[2])
        return out

    @property
    def _uplink(self) -> float:
        return self.bandwidth * (self.hosts_per_rack or math.inf) / self.oversubscribed

    def _all_reduce_level_s(self, num_bytes: float, members: int, bandwidth: float, latency_s: float) -> float:
        """Seconds of an all-reduce among members with equal links."""
        if members == 1:
            return 0.0
        if self.all_reduce == "ring":
            return 2 * (members - 1) * (latency_s + num_bytes / members / bandwidth)
        return 2 * (math.ceil(math.log2(members)) * latency_s + num_bytes / bandwidth)

    def _hosts_and_racks(self, num_ranks: int) -> tuple[IntArray, IntArray]:
        """Return the host and the rack of every rank; without racks all are in one."""
        host = np.arange(num_ranks) // self.ranks_per_host
        return host, host // (self.hosts_per_rack or num_ranks)

    def _uplink_shares(self, host: IntArray, rack: IntArray) -> FloatArray:
        """Return the bandwidth of a rank's host beyond its rack if all hosts of the rack send."""
        hosts = np.bincount(rack[np.unique(host, return_index=True)[1]])  # used hosts of each rack
        out: FloatArray = np.minimum(self.bandwidth, self._uplink / hosts[rack])
        return out

    def _shared_link_bytes(self, num_bytes: FloatArray) -> FloatArray:
        """Return the bytes that a host's link has carried when each of its ranks is done, sharing it evenly."""
        per_host = min(self.ranks_per_host, len(num_bytes))
        by_host = np.zeros((-(-len(num_bytes) // per_host), per_host))
        by_host.flat[: len(num_bytes)] = num_bytes
        order = by_host.argsort(axis=1)
        rising = np.take_along_axis(by_host, order, axis=1)
        done = rising.cumsum(axis=1) + rising * np.arange(per_host)[::-1]  # ranks done before, and ranks still sending
        out = np.empty_like(done)
        np.put_along_axis(out, order, done, axis=1)
        return out.reshape(-1)[: len(num_bytes)]

    def to_json(self) -> dict[str, Any]:
        """Return all fields, for ``from_json``."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Network:
        check_options("a network", values, option_types(cls))
        return cls(**values)

    @classmethod
    def parse(cls, text: str) -> Network:
        """Parse a name or a bandwidth, with options:
        ``25gbit:latency=10us,ranks_per_host=8,inside=20GB,hosts_per_rack=16,oversubscribed=4,all_reduce=tree``."""
        name, _, rest = text.strip().partition(":")
        values = _parse_link(name.strip())
        for option in filter(None, map(str.strip, rest.split(","))):
            key, _, value = (part.strip() for part in option.partition("="))
            if key not in _OPTIONS:
                raise UnknownNameError("option of a network", key, _OPTIONS)
            field, reader, sample = _OPTIONS[key]
            try:
                values[field] = reader(value)
            except ValueError:
                raise OptionError(f"{key} of a network cannot be {value!r}: write {key}={sample}") from None
            except OptionError as error:
                raise OptionError(f"{key} of a network: {error}") from None
        return cls(**values)

    def __str__(self) -> str:
        parts = [f"{self.bandwidth * 8e-9:g} Gbit/s, {self.latency_s * 1e6:g} µs, all-reduce in a {self.all_reduce}"]
        if self.ranks_per_host > 1:
            parts.append(f"{self.ranks_per_host} ranks a host ({self.inside * 8e-9:g} Gbit/s inside)")
        if self.hosts_per_rack is not None:
            parts.append(f"{self.hosts_per_rack} hosts a rack (oversubscribed {self.oversubscribed:g} times)")
        return ", ".join(parts)


def parse_bandwidth(text: str) -> float:
    """Parse bytes per second from bits (``10Gbit``, ``10Gbps``) or bytes (``1.25GB``, ``500MiB``); /s is optional."""
    match = re.fullmatch(rf"{_NUMBER}\s*([kKmMgGtT]?)(i?)((?i:bit)|bps|Bps|b|B)(?:/s)?", text.strip())
    if match is None:
        raise OptionError(f"{text!r} is not a bandwidth: write a number and a unit, such as 10Gbit or 1.25GB")
    number, prefix, binary, unit = match.groups()
    if unit == "b":
        size = f"{number}{prefix.upper()}{binary}"
        raise OptionError(f"{text!r} may be bits or bytes: write {size}bit or {size}B")
    many = float(number) * math.pow(1024 if binary else 1000, " kmgt".index(prefix.lower() or " "))
    return many if unit in ("B", "Bps") else many / 8


def parse_seconds(text: str) -> float:
    """Parse seconds from ``50us`` (or ``50µs``), ``0.5ms``, ``1s``."""
    match = re.fullmatch(rf"{_NUMBER}\s*(us|[µμ]s|ms|s)", text.strip(), re.IGNORECASE)
    if match is None:
        raise OptionError(f"{text!r} is not a duration: write a number and us, ms or s, such as 50us or 0.5ms")
    return float(match[1]) / {"s": 1.0, "ms": 1e3}.get(match[2].lower(), 1e6)


_NUMBER = r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?)"
_NAMED_LINKS: dict[str, dict[str, Any]] = {
    "1gbit": {"bandwidth": 0.125e9, "latency_s": 50e-6},
    "10gbit": {"bandwidth": 1.25e9, "latency_s": 30e-6},
    "25gbit": {"bandwidth": 3.125e9, "latency_s": 20e-6},
    "100gbit": {"bandwidth": 12.5e9, "latency_s": 5e-6},  # usually bypasses the kernel
}
_OPTIONS: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "latency": ("latency_s", parse_seconds, "50us"),
    "ranks_per_host": ("ranks_per_host", int, "8"),
    "inside": ("inside", parse_bandwidth, "20GB"),
    "inside_latency": ("inside_latency_s", parse_seconds, "10us"),
    "hosts_per_rack": ("hosts_per_rack", int, "16"),
    "oversubscribed": ("oversubscribed", float, "4"),
    "all_reduce": ("all_reduce", str, "tree"),
}
"""Command line name of an option: its field, parser and an example."""


def _check_rows(num_ranks: int, *counts: IntArray) -> None:
    if any(len(count) != num_ranks or count.min(initial=0) < 0 for count in counts):
        raise ValueError("bytes sent, messages and bytes received must be non-negative, one of each per rank")


def _parse_link(text: str) -> dict[str, Any]:
    """Parse a named link or a bandwidth."""
    if text.lower() in _NAMED_LINKS:
        return dict(_NAMED_LINKS[text.lower()])
    try:
        return {"bandwidth": parse_bandwidth(text)}
    except OptionError as error:
        raise OptionError(f"{error}; named networks are {', '.join(_NAMED_LINKS)}") from None
