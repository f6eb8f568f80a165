"""Curves for TensorBoard: a writer of event files that imports neither tensorboard nor protobuf.

An event file is a TFRecord: each record is the length of its data, the masked CRC-32C of these 8 bytes, the data, and
the masked CRC-32C of the data. The data are an ``Event`` (tensorflow/core/util/event.proto) in the encoding of protocol
buffers, of which scalars need four fields.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path

EVENT_FILES = "events.out.tfevents.*"
"""Glob of the file names that TensorBoard searches for."""

_FILE_VERSION = b"brain.Event:2"
_SESSION_START = b"\x08\x01"  # SessionLog(status=START): what was written for this step or later ones is discarded
_number = count()


class EventWriter:
    """Writes scalars by step.

    Args:
        folder: where the file is created.
        purge_step: readers discard what earlier files say of this step and of later ones.
    """

    def __init__(self, folder: Path, purge_step: int | None = None) -> None:
        name = f"{time.time():010.0f}.{socket.gethostname()}.{os.getpid()}.{next(_number)}"
        # Unbuffered: a full disk is noticed in the step that it concerns.
        self._file = (folder / EVENT_FILES.replace("*", name)).open("xb", buffering=0)
        self._write(purge_step, 3, _FILE_VERSION)
        if purge_step is not None:
            self._write(purge_step, 7, _SESSION_START)

    def add_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """Write the values of a step by name."""
        values = [_field(1, name.encode()) + b"\x15" + struct.pack("<f", value) for name, value in scalars.items()]
        self._write(step, 5, b"".join(_field(1, value) for value in values))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, step: int | None, field: int, content: bytes) -> None:
        at = b"" if step is None else b"\x10" + _varint(step)
        data = b"\x09" + struct.pack("<d", time.time()) + at + _field(field, content)
        length = struct.pack("<Q", len(data))
        record = memoryview(length + _masked_crc(length) + data + _masked_crc(data))
        while record:
            record = record[self._file.write(record) :]


def _varint(number: int) -> bytes:
    """An integer, 7 bits in each byte, the lowest first."""
    groups = []
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


def _field(number: int, content: bytes) -> bytes:
    """A field of known length: text, or a message."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_CRC = _crc_table()


def _masked_crc(data: bytes) -> bytes:
    """CRC-32C, rotated and shifted so that the checksum of data with a checksum is as good."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
