"""Damage to the files of a run, and an independent word on which of it a reader must refuse."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

JSON_FILES = ("config.json", "result.json")
LINES = "record.jsonl"
_STATES = ("parts", "optimizer", "random", "best_weights")
"""What a checkpoint holds that plans and optimizers take up."""
JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 64, 10**6, 2**62, 2**63, -(10**30), 10**400),
    *(0.0, 0.5, -1.5, 1e-300, 1e300, "", "x", "tgcn", "full", "../..", "/dev/zero", "\0", "\ud800", "é" * 5, "9" * 300),
    *(
        [],
        [1],
        [[]],
        [None, "x"],
        {},
        {"name": "x"},
        {"a": {"b": []}},
        {"$tensor": "x"},
        {"$tuple": 1},
        {"$float": "x"},
    ),
)


@dataclass(frozen=True)
class Damage:
    """What was done. ``forged``: a checksum was made to fit, so that the file may be taken for another run's."""

    what: str
    path: Path | None = None
    forged: bool = False


def damage(rng: random.Random, run: Path) -> Damage:
    """Do one thing to a run's directory."""
    kinds: list[tuple[int, Callable[[random.Random, Path], Damage]]] = [
        (30, _bytes),
        (30, _forge_json),
        (12, _edit_json),
        (35, _forge_checkpoint),
        (6, _remove),
        (4, _rename),
        (6, _leave_over),
        (4, _harmless),
    ]
    chosen = rng.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])[0]
    try:
        return chosen(rng, run)
    except (
        ArithmeticError,
        ValueError,
        LookupError,
        OSError,
        AttributeError,
        TypeError,
    ):  # what earlier damage has left cannot be damaged so
        return Damage("nothing")


def files_of(run: Path) -> list[Path]:
    """All files of a run that Strobe may read."""
    return sorted(
        path for path in run.rglob("*") if path.is_file() and path.suffix != ".svg" and "events" not in path.name
    )


def mutate(rng: random.Random, value: Any) -> Any:
    """The same nest with one value replaced, removed, renamed or repeated, wherever it stands."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        name = rng.choice(list(value))
        how = rng.random()
        if how < 0.12:
            return {key: item for key, item in value.items() if key != name}
        if how < 0.18:
            return {(f"{key}x" if key == name else key): item for key, item in value.items()}
        if how < 0.22:
            return {**value, rng.choice(["x", "name", "self", "path", "$dict", "more"]): rng.choice(JUNK)}
        return {key: mutate(rng, item) if key == name else item for key, item in value.items()}
    if isinstance(value, list) and value and rng.random() < 0.75:
        at = rng.randrange(len(value))
        how = rng.random()
        if how < 0.15:
            return value[:at] + value[at + 1 :]
        if how < 0.25:
            return [*value, *value[at:]]
        return [*value[:at], mutate(rng, value[at]), *value[at + 1 :]]
    if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.4:
        return rng.choice([value + 1, -value, value * 2, -value * 3, str(value)[:50], [value], 10**9])
    return rng.choice(JUNK)


def seal(values: dict[str, Any]) -> dict[str, Any]:
    """Values with the checksum that Strobe will look for, by its description: CRC-32 of the sorted JSON."""
    rest = {name: value for name, value in values.items() if name != "crc32"}
    return {**rest, "crc32": f"{zlib.crc32(json.dumps(rest, sort_keys=True).encode()):08x}"}


def same_json(before: bytes, after: bytes) -> bool:
    """Whether two texts hold the same value, bit for bit; a text that is no JSON holds none."""
    try:
        return repr(json.loads(before)) == repr(json.loads(after))
    except (ValueError, RecursionError):
        return False


def _bytes(rng: random.Random, run: Path) -> Damage:
    path = rng.choice(files_of(run))
    data = bytearray(path.read_bytes())
    how = rng.choice(["flip", "flip", "flip", "cut", "zero", "more", "swap"])
    at = rng.randrange(len(data)) if data else 0
    if how == "flip" and data:
        for _ in range(rng.choice([1, 1, 2, 5])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif how == "cut":
        del data[at:]
    elif how == "zero":
        data[at : at + 16] = bytes(len(data[at : at + 16]))
    elif how == "more":
        data[at:at] = rng.randbytes(rng.choice([1, 7, 100]))
    else:
        data[at:] = bytes(reversed(data[at:]))
    path.write_bytes(data)
    return Damage(how, path)


def _some_json(rng: random.Random, run: Path) -> tuple[Path, int | None]:
    """A file of JSON, or a line of the record."""
    there = [run / name for name in (*JSON_FILES, LINES) if (run / name).exists()]
    path = rng.choice([*there, run / "config.json"])
    return path, rng.randrange(len(path.read_bytes().splitlines())) if path.name == LINES else None


def _rewrite(path: Path, line: int | None, change: Callable[[dict[str, Any]], Any]) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    if line is None:
        path.write_text(json.dumps(change(json.loads(path.read_bytes())), indent=1))
    else:
        lines[line] = json.dumps(change(json.loads(lines[line]))).encode() + b"\n"
        path.write_bytes(b"".join(lines))


def _edit_json(rng: random.Random, run: Path) -> Damage:
    path, line = _some_json(rng, run)
    _rewrite(path, line, lambda value: mutate(rng, value))
    return Damage("edit", path)


def _forge_json(rng: random.Random, run: Path) -> Damage:
    path, line = _some_json(rng, run)

    def change(value: dict[str, Any]) -> Any:
        found: Any = {name: item for name, item in value.items() if name != "crc32"}
        for _ in range(rng.choice([1, 1, 1, 2, 4])):
            found = mutate(rng, found)
        return seal(found) if isinstance(found, dict) else found

    _rewrite(path, line, change)
    return Damage("forge", path, forged=True)


def _forge_checkpoint(rng: random.Random, run: Path) -> Damage:
    checkpoints = sorted((run / "checkpoints").glob("epoch-*"))
    path = rng.choice(checkpoints[-1:] * 4 + checkpoints + [run / "best.safetensors"])
    header, tensors = _split_safetensors(path.read_bytes())
    metadata = header.pop("__metadata__")
    content = json.loads(metadata["strobe"])
    if rng.random() < 0.2:
        one, other = (rng.choice(list(header)) for _ in range(2))  # tensors of other shapes and types
        header[one] = header[other]
    elif rng.random() < 0.85:
        for _ in range(rng.choice([1, 1, 2, 4])):
            values = content.get("values")
            states = [name for name in _STATES if isinstance(values, dict) and values.get(name)]
            if rng.random() < 0.25:
                header = mutate(rng, header)
            elif states and rng.random() < 0.6:
                name = rng.choice(states)
                content["values"] = {**values, name: mutate(rng, values[name])}
            else:
                content["values"] = mutate(rng, values)
    elif tensors:
        tensors[rng.randrange(len(tensors))] ^= 1 << rng.randrange(8)
    path.write_bytes(_seal_safetensors(header, content, tensors))
    return Damage("forge checkpoint", path, forged=True)


def _split_safetensors(data: bytes) -> tuple[dict[str, Any], bytearray]:
    """The JSON header of a safetensors file, and the bytes of its tensors."""
    end = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:end]), bytearray(data[end:])


def _seal_safetensors(header: Any, content: dict[str, Any], tensors: bytearray) -> bytes:
    """A safetensors file with the SHA-256 that Strobe will look for: of the file with zeros in its place."""
    zeros = "0" * 64
    metadata = {"__metadata__": {"strobe": json.dumps({**content, "sha256": zeros})}}
    text = json.dumps({**metadata, **header} if isinstance(header, dict) else header).encode()
    data = len(text).to_bytes(8, "little") + text + tensors
    return data.replace(zeros.encode(), hashlib.sha256(data).hexdigest().encode(), 1)


def _remove(rng: random.Random, run: Path) -> Damage:
    path = rng.choice(files_of(run))
    path.unlink()
    return Damage("remove", path)


def _rename(rng: random.Random, run: Path) -> Damage:
    path = rng.choice(files_of(run))
    if path.name.startswith("epoch-") and rng.random() < 0.7:
        name = rng.choice(["epoch-000009", "epoch-9", "epoch-x", "epoch-99999999999999999999"])
        other = path.with_name(f"{name}.safetensors")
        if other.exists():
            return Damage("nothing")
        path.rename(other)
        return Damage("rename", path)
    path.rename(path.with_name(f"{path.name}.bak"))
    return Damage("remove", path)


def _leave_over(rng: random.Random, run: Path) -> Damage:
    """Files that a process which was killed leaves behind."""
    name = rng.choice(["config.json", "best.safetensors", "record.jsonl", "result.json", "learning_curve.svg"])
    (run / f".{name}.writing-{rng.choice([1, 99, 4_000_000])}").write_bytes(rng.randbytes(rng.choice([0, 10, 1000])))
    kept = sorted((run / "checkpoints").glob("epoch-*"))
    if rng.random() < 0.5 and kept:
        shutil.copy(kept[-1], run / "checkpoints" / f".{kept[-1].name}.writing-77")
    if rng.random() < 0.5:
        with (run / LINES).open("ab") as file:
            file.write(b'{"event": "epoch", "at": 17')
    return Damage("leave over")


def _harmless(rng: random.Random, run: Path) -> Damage:
    """What nothing reads."""
    if rng.random() < 0.5:
        for picture in run.glob("*.svg"):
            picture.write_bytes(rng.randbytes(50))
    else:
        (run / rng.choice(["notes.txt", "events.out.tfevents.1.1", "best.safetensors~"])).write_bytes(rng.randbytes(50))
    return Damage("harmless")
