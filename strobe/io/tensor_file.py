"""Checksummed safetensors files: tensors, and in the metadata a JSON value and a SHA-256 of the whole file.

Any reader of safetensors opens them. The metadata have one entry, ``strobe``; the checksum is that of the file with
zeros in its own place. Nothing that is read is run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strobe.errors import FormatError
from strobe.io.atomic import write_atomic
from strobe.io.checksum import parse_json

_KEY, _ZEROS = "strobe", "0" * 64


def write_tensor_file(path: Path, values: Any, serialize: Callable[[dict[str, str]], bytes]) -> None:
    """Write a file, whole or not at all.

    Args:
        path: the file.
        values: a JSON value without infinite numbers and NaN.
        serialize: returns the bytes of a safetensors file with the given metadata: ``save`` of ``safetensors.torch`` or
            ``safetensors.numpy``.
    """
    text = json.dumps({"sha256": _ZEROS, "values": values}, allow_nan=False)
    data = memoryview(serialize({_KEY: text}))
    at = bytes(data[: 8 + _header_bytes(data)]).index(_ZEROS.encode())
    digest = hashlib.sha256(data).hexdigest().encode()
    write_atomic(path, lambda file: file.writelines((data[:at], digest, data[at + len(digest) :])))


def read_tensor_file(path: Path) -> tuple[bytes, Any]:
    """Read a file: its bytes, which a reader of safetensors loads, and its values. About 0.5 s/GB, for the checksum.

    Raises:
        FileNotFoundError: there is no such file.
        FormatError: a byte of the file differs, or it holds something else.
    """
    try:
        return _read_verified(path)
    except FileNotFoundError:
        raise
    except Exception as error:  # json has many ways to say that it cannot read a file
        raise FormatError(f"{path} is damaged: {_reason(error)}") from error


def read_values(path: Path) -> Any:
    """Read the values alone, without comparing the checksum.

    Raises:
        OSError: the file cannot be read.
        FormatError: the file holds something else.
    """
    with path.open("rb") as file:
        size = _header_bytes(file.read(8))
        try:
            return _parse_header(file.read(size))["values"]
        except Exception as error:
            raise FormatError(f"{path} is damaged: {_reason(error)}") from error


def _read_verified(path: Path) -> tuple[bytes, Any]:
    data = path.read_bytes()
    header = data[: 8 + _header_bytes(data)]
    content = _parse_header(header[8:])
    stored = content["sha256"].encode()
    at = header.index(stored)
    digest = hashlib.sha256(data[:at] + _ZEROS.encode())
    digest.update(memoryview(data)[at + len(stored) :])
    if digest.hexdigest().encode() != stored:
        raise FormatError("its checksum does not match")
    return data, content["values"]


def _parse_header(header: bytes) -> Any:
    return parse_json(parse_json(header)["__metadata__"][_KEY].encode())


def _header_bytes(data: bytes | memoryview) -> int:
    """Length of the JSON header of a safetensors file, from its first 8 bytes."""
    return int.from_bytes(data[:8], "little")


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
