from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from strobe.engine.checkpoint.weights_file import read_weights, write_weights
from strobe.errors import FormatError
from tests.support.runs import same_tensors

WEIGHTS: dict[str, Any] = {"model": {"a": torch.arange(6.0)}, "head": {}, "epoch": 3, "metric": 0.5}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_weights(tmp_path / "best.pt", WEIGHTS)
    return tmp_path / "best.pt"


def forge(path: Path, value: Any) -> None:
    """Writes something else with a checksum that fits."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    data = buffer.getvalue()[:-2] + (71).to_bytes(2, "little")
    path.write_bytes(data + b"sha256:" + hashlib.sha256(data).hexdigest().encode())


def test_torch_and_zip_read_the_file(path: Path) -> None:
    assert same_tensors(torch.load(path, weights_only=True), WEIGHTS)
    assert same_tensors(read_weights(path), WEIGHTS)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.comment.startswith(b"sha256:")


def test_every_flipped_bit_and_every_lost_byte_is_refused(path: Path) -> None:
    data = path.read_bytes()
    for at in range(0, len(data), 7):
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
        with pytest.raises(FormatError, match=r"best\.pt is damaged"):
            read_weights(path)
    for size in (0, 1, 70, 71, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(FormatError, match=r"best\.pt is damaged"):
            read_weights(path)


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("weights ran code",))


@pytest.mark.parametrize(
    "value", [_Evil(), None, [], {}, WEIGHTS | {"model": 3}, WEIGHTS | {"epoch": "x"}, WEIGHTS | {"epoch": -1}]
)
def test_forged_weights_are_refused(path: Path, value: Any) -> None:
    forge(path, value)
    with pytest.raises(FormatError, match=r"best\.pt is damaged"):
        read_weights(path)
