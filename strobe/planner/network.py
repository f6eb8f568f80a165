"""How long messages take on a cluster that need not exist: hosts with a link each, in racks with an uplink each.

Ranks are on hosts, and hosts in racks, in the order of their numbers; the last ones may have fewer than the others.
A link carries its bandwidth in both directions at once. Everything here is a pure function of a few numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from strobe.errors import OptionError, UnknownNameError
from strobe.ops.csr import FloatArray, IntArray
from strobe.options import check_options, hints_of


@dataclass(frozen=True, kw_only=True)
class Network:
    """A cluster's network; bandwidths are bytes a second.

    ``ranks_per_host`` ranks share the link of their host, with its ``bandwidth`` and its ``latency_s`` of a message;
    among themselves each of them has ``inside`` and ``inside_latency_s``. The links of the ``hosts_per_rack`` hosts of
    a rack together are ``oversubscribed`` times its uplink; without racks there is one switch, and nothing is in the
    way. ``all_reduce`` is how ranks add up: gloo goes round in a ring, NCCL takes trees for small messages.
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
        check_options("a network", asdict(self), hints_of(type(self)))
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
                f"oversubscribed {self.oversubscribed:g} is about the uplinks of racks, and this network has none: "
                "say how many hosts a rack has (hosts_per_rack)"
            )

    def sum_s(self, num_bytes: float, num_ranks: int) -> float:
        """Seconds of an all-reduce of ``num_bytes`` on every rank; 0 for one rank.

        First the ranks of a host add up among themselves, then hosts do. Where n take part, each of these takes

        - in a ring 2 (n - 1) latencies, and 2 (n - 1) / n of the bytes over the slowest link;
        - in a tree 2 ceil(log2 n) latencies, and 2 times the bytes over the slowest link.

        Between hosts each of k ranks has 1 / k of the bytes to send, and 1 / k of the link: a host sends the bytes
        once. As hosts are in order, a rack's uplink carries what one link does, however many hosts it has; so it is
        the slowest only where it is narrower than the link of one host.
        """
        if num_ranks < 1 or num_bytes < 0:
            raise ValueError(f"ranks must be at least 1 and bytes 0, not {num_ranks} and {num_bytes}")
        num_hosts = -(-num_ranks // self.ranks_per_host)
        one_rack = num_hosts <= (self.hosts_per_rack or num_hosts)
        slowest = self.bandwidth if one_rack else min(self.bandwidth, self._uplink)
        among = self._around(num_bytes, min(num_ranks, self.ranks_per_host), self.inside, self.inside_latency_s)
        return among + self._around(num_bytes, num_hosts, slowest, self.latency_s)

    def rows_s(self, sent: IntArray, messages: IntArray, received: IntArray | None = None) -> FloatArray:
        """Seconds that the rows of each rank take, [W], of the bytes and messages it sends and the bytes it receives.

        Of W - 1 other ranks W - h are outside a rank's host of h ranks, W - r outside its rack of r ranks; that part
        of its bytes, and of its messages, is taken to go there. Then its rows take

        - a latency for every message, that of its host's inside or of links; one who only hears waits for one message;
        - and the longest of: its bytes inside at ``inside``; those that leave the host over its link; those that leave
          the rack over its host's part of the uplink, uplink / hosts of the rack, never more than the link.

        Ranks of a host begin together and share its link evenly until they are done: a rank of b bytes after
        sum over j of min(b, b_j) at the link's bandwidth. Both directions go on at once, and the fuller one decides;
        without ``received`` they are taken for equal.
        """
        received = sent if received is None else received
        num_ranks = len(sent)
        _check_rows(num_ranks, sent, messages, received)
        if num_ranks < 2:
            return np.zeros(num_ranks)
        host, rack = self._places(num_ranks)
        beyond_host, beyond_rack = ((num_ranks - np.bincount(at)[at]) / (num_ranks - 1) for at in (host, rack))
        uplink = self._parts_of_uplinks(host, rack)
        latency_s = beyond_host * self.latency_s + (1 - beyond_host) * self.inside_latency_s
        parts = [np.maximum(messages, received > 0) * latency_s]
        for num_bytes in (sent, received):
            inside = num_bytes * (1 - beyond_host) / self.inside
            link = self._together(num_bytes * beyond_host) / self.bandwidth
            up = self._together(num_bytes * beyond_rack) / uplink
            parts.append(np.maximum.reduce([inside, link, up]))
        out: FloatArray = parts[0] + np.maximum(parts[1], parts[2])
        return out

    @property
    def _uplink(self) -> float:
        return self.bandwidth * (self.hosts_per_rack or math.inf) / self.oversubscribed

    def _around(self, num_bytes: float, members: int, bandwidth: float, latency_s: float) -> float:
        """An all-reduce of some members with equal links."""
        if members == 1:
            return 0.0
        if self.all_reduce == "ring":
            return 2 * (members - 1) * (latency_s + num_bytes / members / bandwidth)
        return 2 * (math.ceil(math.log2(members)) * latency_s + num_bytes / bandwidth)

    def _places(self, num_ranks: int) -> tuple[IntArray, IntArray]:
        """The host and the rack of every rank; without racks all are in one."""
        host = np.arange(num_ranks) // self.ranks_per_host
        return host, host // (self.hosts_per_rack or num_ranks)

    def _parts_of_uplinks(self, host: IntArray, rack: IntArray) -> FloatArray:
        """Bytes a second that a rank's host has beyond its rack, when all hosts of the rack want to get there."""
        hosts = np.bincount(rack[np.unique(host, return_index=True)[1]])  # of each rack, as many as are used
        out: FloatArray = np.minimum(self.bandwidth, self._uplink / hosts[rack])
        return out

    def _together(self, num_bytes: FloatArray) -> FloatArray:
        """Bytes that a host's link has carried when each of its ranks is done, all sharing it evenly."""
        per_host = min(self.ranks_per_host, len(num_bytes))
        by_host = np.zeros((-(-len(num_bytes) // per_host), per_host))
        by_host.flat[: len(num_bytes)] = num_bytes
        order = by_host.argsort(axis=1)
        rising = np.take_along_axis(by_host, order, axis=1)
        done = rising.cumsum(axis=1) + rising * np.arange(per_host)[::-1]  # who is done before, and who is not yet
        out = np.empty_like(done)
        np.put_along_axis(out, order, done, axis=1)
        return out.reshape(-1)[: len(num_bytes)]

    def to_json(self) -> dict[str, Any]:
        """All fields: ``from_json`` makes an equal network of them."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Network:
        check_options("a network", values, hints_of(cls))
        return cls(**values)

    @classmethod
    def read(cls, text: str) -> Network:
        """From ``10gbit`` or another name, or from a bandwidth; after it what is not as usual:
        ``25gbit:latency=10us,ranks_per_host=8,inside=20GB,hosts_per_rack=16,oversubscribed=4,all_reduce=tree``."""
        name, _, rest = text.strip().partition(":")
        given = _link(name.strip())
        for option in filter(None, map(str.strip, rest.split(","))):
            key, _, value = (part.strip() for part in option.partition("="))
            if key not in _READ:
                raise UnknownNameError("option of a network", key, _READ)
            field, reader, sample = _READ[key]
            try:
                given[field] = reader(value)
            except ValueError:
                raise OptionError(f"{key} of a network cannot be {value!r}: write {key}={sample}") from None
            except OptionError as error:
                raise OptionError(f"{key} of a network: {error}") from None
        return cls(**given)

    def __str__(self) -> str:
        parts = [f"{self.bandwidth * 8e-9:g} Gbit/s, {self.latency_s * 1e6:g} µs, all-reduce in a {self.all_reduce}"]
        if self.ranks_per_host > 1:
            parts.append(f"{self.ranks_per_host} ranks a host ({self.inside * 8e-9:g} Gbit/s inside)")
        if self.hosts_per_rack is not None:
            parts.append(f"{self.hosts_per_rack} hosts a rack (oversubscribed {self.oversubscribed:g} times)")
        return ", ".join(parts)


def read_bandwidth(text: str) -> float:
    """Bytes a second, from bits (``10Gbit``, ``10Gbps``) or bytes (``1.25GB``, ``500MiB``), with or without /s."""
    match = re.fullmatch(rf"{_NUMBER}\s*([kKmMgGtT]?)(i?)((?i:bit)|bps|Bps|b|B)(?:/s)?", text.strip())
    if match is None:
        raise OptionError(f"{text!r} is no bandwidth: write a number and a unit, such as 10Gbit, 1.25GB or 800MB")
    number, prefix, binary, unit = match.groups()
    if unit == "b":
        size = f"{number}{prefix.upper()}{binary}"
        raise OptionError(f"{text!r} may be bits or bytes: write {size}bit or {size}B")
    many = float(number) * math.pow(1024 if binary else 1000, " kmgt".index(prefix.lower() or " "))
    return many if unit in ("B", "Bps") else many / 8


def read_seconds(text: str) -> float:
    """Seconds, from ``50us`` (or ``50µs``), ``0.5ms``, ``1s``."""
    match = re.fullmatch(rf"{_NUMBER}\s*(us|[µμ]s|ms|s)", text.strip(), re.IGNORECASE)
    if match is None:
        raise OptionError(f"{text!r} is no duration: write a number and us, ms or s, such as 50us or 0.5ms")
    return float(match[1]) / {"s": 1.0, "ms": 1e3}.get(match[2].lower(), 1e6)


_NUMBER = r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?)"
_COMMON: dict[str, dict[str, Any]] = {
    "1gbit": {"bandwidth": 0.125e9, "latency_s": 50e-6},
    "10gbit": {"bandwidth": 1.25e9, "latency_s": 30e-6},
    "25gbit": {"bandwidth": 3.125e9, "latency_s": 20e-6},
    "100gbit": {"bandwidth": 12.5e9, "latency_s": 5e-6},  # such links seldom go through the kernel
}
_READ: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "latency": ("latency_s", read_seconds, "50us"),
    "ranks_per_host": ("ranks_per_host", int, "8"),
    "inside": ("inside", read_bandwidth, "20GB"),
    "inside_latency": ("inside_latency_s", read_seconds, "10us"),
    "hosts_per_rack": ("hosts_per_rack", int, "16"),
    "oversubscribed": ("oversubscribed", float, "4"),
    "all_reduce": ("all_reduce", str, "tree"),
}
"""What a command line calls a field, how it is read, and what it may look like."""


def _check_rows(num_ranks: int, *counts: IntArray) -> None:
    if any(len(count) != num_ranks or count.min(initial=0) < 0 for count in counts):
        raise ValueError("every rank has bytes sent, messages and bytes received, none of them below 0")


def _link(text: str) -> dict[str, Any]:
    """A network with a name, or one of another bandwidth."""
    if text.lower() in _COMMON:
        return dict(_COMMON[text.lower()])
    try:
        return {"bandwidth": read_bandwidth(text)}
    except OptionError as error:
        raise OptionError(f"{error}; networks with a name are {', '.join(_COMMON)}") from None
