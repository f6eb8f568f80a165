from __future__ import annotations

import socket

from strobe.comm.keepalive import keep_links_alive


def test_links_over_tcp_are_kept_alive_and_fail_by_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as link:
        assert keep_links_alive(8.0) >= 1
        assert link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, every, probes = (
            link.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + every * probes == 8
        assert not server.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
