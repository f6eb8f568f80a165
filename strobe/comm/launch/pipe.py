"""The socket between a rank's process and the launcher: messages to the launcher, release bytes to the rank."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

READY, EVENT, DONE, FAILED = b"r", b"e", b"d", b"f"
_HEAD = struct.Struct("<cQ")  # kind, length


class RankPipe:
    """The rank's end."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._lock = threading.Lock()

    def send(self, kind: bytes, body: bytes = b"") -> None:
        """Send a message to the launcher."""
        with self._lock:
            self._link.sendall(_HEAD.pack(kind, len(body)))
            self._link.sendall(body)

    def wait(self) -> bool:
        """Block until the launcher releases this rank; False if the launcher is gone."""
        return bool(self._link.recv(1))


class LauncherPipe:
    """The launcher's end. It never blocks within a message: the rank may have been stopped while sending it."""

    def __init__(self, link: socket.socket) -> None:
        link.setblocking(False)
        self.link = link
        self.is_open = True
        self._pending = bytearray()

    def poll(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield kind and body of all messages that have arrived completely."""
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
        for _ in range(256):  # bounded, so that one rank cannot keep the launcher from polling others
            try:
                part = self.link.recv(1 << 20) if self.is_open else b""
            except BlockingIOError:
                return
            except ConnectionError:
                part = b""
            if not part:
                self.is_open = False
                return
            self._pending += part

    def release(self) -> None:
        """Let the rank continue. The exit of a rank that is gone is noticed by its status."""
        try:
            self.link.send(b"!")
        except (BlockingIOError, ConnectionError):
            return
