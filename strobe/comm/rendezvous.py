"""How ranks find each other: the network interface, a store that only living ranks share, and TCP timeouts."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from pathlib import Path
from time import monotonic, sleep
from uuid import uuid4

from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from strobe.comm.base import CommError
from strobe.errors import OptionError

_SIOCGIFADDR = 0x8915  # ioctl: IPv4 address of an interface
_INTERFACE_VARIABLE, _LOOPBACK = "GLOO_SOCKET_IFNAME", "lo"
_POLL_EVERY_S = 0.02
_PROBES = 3


def choose_interface() -> None:
    """Set gloo's interface to the one that reaches the master's address, unless the user has set it.

    By default gloo uses the address of this machine's host name. Where that is a loopback address (127.0.1.1, as Debian
    sets it), no other machine can connect.

    Raises:
        OptionError: if the master's address is a loopback address of this machine and there are other machines.
    """
    master = os.environ.get("MASTER_ADDR")
    if not master or os.environ.get(_INTERFACE_VARIABLE):
        return
    interface = find_interface(master)
    if interface == _LOOPBACK and _is_multi_node():
        raise OptionError(
            f"other machines cannot connect to this one: {master} is a loopback address here. Give torchrun another "
            f"address with --local-addr, or set {_INTERFACE_VARIABLE} to the network interface"
        )
    if interface is not None:
        os.environ[_INTERFACE_VARIABLE] = interface


def _is_multi_node() -> bool:
    world_size = os.environ.get("WORLD_SIZE")
    return os.environ.get("LOCAL_WORLD_SIZE", world_size) != world_size


def find_interface(host: str) -> str | None:
    """Return the interface whose IPv4 address packets to ``host`` have as their source, or None if unknown."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))  # sends nothing: the kernel only looks up the route
            source = probe.getsockname()[0]
            return next((name for _, name in socket.if_nameindex() if _interface_address(probe, name) == source), None)
    except OSError:
        return None


def _interface_address(probe: socket.socket, interface: str) -> str | None:
    try:
        request = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
    except OSError:  # no address
        return None
    return socket.inet_ntoa(request[20:24])


def create_round_store(store: Store, rank: int, num_ranks: int, deadline_s: float) -> Store:
    """Return a part of ``store`` that only ranks of this start share, without keys of an earlier one. Collective.

    Rank 0 publishes a name. Other ranks answer with this name and an id of their own; an answer to a new name proves
    that a rank is alive. Rank 0 then publishes the ids of all answers. A rank that has read the name of an earlier
    start does not find its id there and tries again.

    Raises:
        CommError: if not all ranks have joined within the deadline.
    """
    store = PrefixStore("strobe", store)
    own_id, until = uuid4().hex, monotonic() + deadline_s
    while monotonic() < until:
        name = _announce_round(store, own_id, num_ranks) if rank == 0 else _join_round(store, own_id, rank)
        if name is not None:
            return PrefixStore(name, store)
        sleep(_POLL_EVERY_S)
    raise CommError(f"rank {rank} stopped while joining: not all {num_ranks} ranks came within {deadline_s:g} s")


def _announce_round(store: Store, own_id: str, num_ranks: int) -> str | None:
    store.set("round", own_id)
    keys = [f"answer/{rank}" for rank in range(1, num_ranks)]
    answers = [store.get(key).decode().split() for key in keys] if store.check(keys) else []
    if len(answers) < num_ranks - 1 or any(name != own_id for name, _ in answers):
        return None
    store.set(f"present/{own_id}", " ".join(rank_id for _, rank_id in answers))
    return own_id


def _join_round(store: Store, own_id: str, rank: int) -> str | None:
    if not store.check(["round"]):
        return None
    name = store.get("round").decode()
    store.set(f"answer/{rank}", f"{name} {own_id}")
    present = f"present/{name}"
    return name if store.check([present]) and own_id in store.get(present).decode().split() else None


def bound_tcp_timeouts(deadline_s: float) -> int:
    """Let all TCP connections of this process to a lost machine fail by the deadline: idle ones by keepalive, and ones
    with bytes on their way, which suspend keepalive and would be sent again for a quarter of an hour, by a timeout.

    Returns:
        The number of connections.
    """
    every_s = max(1, int(deadline_s / (_PROBES + 1)))
    num_connections = 0
    for name in Path("/proc/self/fd").iterdir():
        try:
            with socket.socket(fileno=os.dup(int(name.name))) as link:
                link.getpeername()
                if link.family in (socket.AF_INET, socket.AF_INET6) and link.type == socket.SOCK_STREAM:
                    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, every_s)
                    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, every_s)
                    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
                    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * deadline_s))
                    num_connections += 1
        except OSError:  # not a socket, not connected, or closed meanwhile
            continue
    return num_connections
