"""The wire between a rank's process and the one that started it: messages one way, single nudges the other."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

READY, EVENT, DONE, FAILED = b"r", b"e", b"d", b"f"
_HEAD = struct.Struct("<cQ")  # kind, length


class RankEnd:
    """The rank's end."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._one_at_a_time = threading.Lock()

    def say(self, kind: bytes, body: bytes = b"") -> None:
        with self._one_at_a_time:
            self._link.sendall(_HEAD.pack(kind, len(body)))
            self._link.sendall(body)

    def wait(self) -> bool:
        """Waits for a nudge; false if there is nobody left to give one."""
        return bool(self._link.recv(1))


class ParentEnd:
    """The other end. It never waits in the middle of a message: the rank may have been stopped in it."""

    def __init__(self, link: socket.socket) -> None:
        link.setblocking(False)
        self.link = link
        self.open = True
        self._pending = bytearray()

    def heard(self) -> Iterator[tuple[bytes, bytes]]:
        """All messages that have arrived whole: kind and body."""
        self._read()
        while len(self._pending) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._pending)
            end = _HEAD.size + length
            if len(self._pending) < end:
                return
            body = bytes(memoryview(self._pending)[_HEAD.size : end])
            del self._pending[:end]
            yield kind, body

    def _read(self) -> None:
        for _ in range(256):  # more than a socket holds; then others are heard, too
            try:
                part = self.link.recv(1 << 20) if self.open else b""
            except BlockingIOError:
                return
            except ConnectionError:
                part = b""
            if not part:
                self.open = False
                return
            self._pending += part

    def nudge(self) -> None:
        """Lets the rank go on. One that has just died cannot be told; its end is noticed elsewhere."""
        try:
            self.link.send(b"!")
        except (BlockingIOError, ConnectionError):
            return
