"""TCP keepalive on the links between ranks: the kernel finds out that a machine is gone while no message is due."""

from __future__ import annotations

import os
import socket
from pathlib import Path

_PROBES = 3


def keep_links_alive(deadline_s: float) -> int:
    """Turns keepalive on for all TCP connections of this process; one whose machine is gone fails after the deadline.

    Returns:
        how many connections there are.
    """
    every_s = max(1, int(deadline_s / (_PROBES + 1)))
    found = 0
    for name in Path("/proc/self/fd").iterdir():
        try:
            with socket.socket(fileno=os.dup(int(name.name))) as link:
                link.getpeername()
                if link.family in (socket.AF_INET, socket.AF_INET6) and link.type == socket.SOCK_STREAM:
                    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, every_s)
                    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, every_s)
                    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
                    found += 1
        except OSError:  # no socket, not connected, or closed meanwhile
            continue
    return found
