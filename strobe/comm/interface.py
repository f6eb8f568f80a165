"""Which network interface leads to the other ranks."""

from __future__ import annotations

import fcntl
import os
import socket
import struct

from strobe.errors import OptionError

_SIOCGIFADDR = 0x8915  # asks the kernel for the IPv4 address of an interface
_WISH, _LOOPBACK = "GLOO_SOCKET_IFNAME", "lo"


def choose_interface() -> None:
    """Tells gloo the interface that leads to the master's address, unless the user has.

    Gloo alone takes the address that this machine's own name has. Where that is one of the machine itself (127.0.1.1,
    as Debian has it) no other machine could answer.
    """
    master = os.environ.get("MASTER_ADDR")
    if not master or os.environ.get(_WISH):
        return
    found = interface_towards(master)
    if found == _LOOPBACK and _on_several_machines():
        raise OptionError(
            f"ranks of other machines cannot answer: on this one {master} is an address of its own. Tell torchrun the "
            f"one that others know with --local-addr, or name the network interface with {_WISH}"
        )
    if found is not None:
        os.environ[_WISH] = found


def _on_several_machines() -> bool:
    everywhere = os.environ.get("WORLD_SIZE")
    return os.environ.get("LOCAL_WORLD_SIZE", everywhere) != everywhere


def interface_towards(host: str) -> str | None:
    """The interface whose IPv4 address packets to this host would bear, if that can be said."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))  # sends nothing: the kernel only looks up the way
            mine = probe.getsockname()[0]
            return next((name for _, name in socket.if_nameindex() if _address(probe, name) == mine), None)
    except OSError:
        return None


def _address(probe: socket.socket, interface: str) -> str | None:
    try:
        told = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
    except OSError:  # it has none
        return None
    return socket.inet_ntoa(told[20:24])
