"""Saved graphs that were edited by someone who knows how checksums are made."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def forge_description(place: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes the description in place, and gives it the checksum that fits."""
    meta = json.loads((place / "graph.json").read_text())
    change(meta)
    meta.pop("crc32", None)
    crc = zlib.crc32(json.dumps(meta, sort_keys=True).encode())
    (place / "graph.json").write_text(json.dumps({**meta, "crc32": f"{crc:08x}"}))


def forge_array(place: Path, name: str, values: npt.NDArray[Any]) -> None:
    """Writes an array in place of one, or adds it, and has the description agree."""
    np.save(place / f"{name}.npy", values)
    entry = {"dtype": values.dtype.str, "shape": list(values.shape), "crc32": f"{zlib.crc32(values.tobytes()):08x}"}
    forge_description(place, lambda meta: meta["arrays"].update({name: entry}))


def forge_value(place: Path, name: str, at: int, value: float) -> None:
    """Changes one number of an array."""
    values = np.load(place / f"{name}.npy")
    values.flat[at] = value
    forge_array(place, name, values)
