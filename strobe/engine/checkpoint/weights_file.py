"""Weights in one file that ``torch.load`` reads, with a checksum of every byte.

A file of torch is a ZIP archive, and an archive ends in a comment: here ``sha256:`` and the sum of all that comes
before it. torch ignores the comment; ``unzip -z`` shows it.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import torch

from strobe.errors import FormatError
from strobe.io.atomic import write_atomic

_MARK = b"sha256:"
_COMMENT_BYTES = len(_MARK) + 64
_END, _END_BYTES = b"PK\x05\x06", 22
"""How the last record of an archive begins, and its size without the comment, whose length is its last field."""


def write_weights(path: Path, weights: dict[str, Any]) -> None:
    """Write tensors and plain values, whole or not at all."""
    buffer = io.BytesIO()
    torch.save(weights, buffer)
    data = bytearray(buffer.getvalue())
    assert data[-_END_BYTES:].startswith(_END), "torch.save writes ZIP archives without a comment"
    data[-2:] = _COMMENT_BYTES.to_bytes(2, "little")
    data += _MARK + hashlib.sha256(data).hexdigest().encode()
    write_atomic(path, lambda file: file.write(data))


def read_weights(path: Path) -> dict[str, Any]:
    """Read what ``write_weights`` has written; no code of the file is run.

    Raises:
        FileNotFoundError: there is no such file.
        FormatError: a byte of the file differs, or it holds something else than weights.
    """
    try:
        data = path.read_bytes()
        comment = _MARK + hashlib.sha256(data[:-_COMMENT_BYTES]).hexdigest().encode()
        if data[-_COMMENT_BYTES:] != comment:
            raise FormatError("it is not as it was written, its checksum does not match")
        found = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        if not _is_weights(found):
            raise FormatError("it does not hold the weights of a model and its head")
    except FileNotFoundError:
        raise
    except Exception as error:  # torch says in many ways that it cannot read a file
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise FormatError(f"{path} is damaged: {why}") from error
    weights: dict[str, Any] = found
    return weights


def _is_weights(found: Any) -> bool:
    return (
        isinstance(found, dict)
        and isinstance(found.get("model"), dict)
        and isinstance(found.get("head"), dict)
        and isinstance(found.get("epoch"), int)
        and found["epoch"] >= 0
    )
