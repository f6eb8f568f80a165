"""A checkpoint on disk: a folder that torch.distributed.checkpoint reads, with its values and its checksums.

``.metadata`` and ``__0_0.distcp`` are torch's. ``values.json`` is the nest that the tensors stand in and where each of
them is in torch's file, ``SHA256SUMS`` says what all files must be (``sha256sum -c`` checks it, too). torch would read
its metadata, and every value that is no tensor, as a pickle, which may run anything: here the metadata is only for
torch, values are JSON, and nothing is ever run. No rank talks to another: one has everything.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from strobe.errors import FormatError, OptionError
from strobe.io.atomic import write_atomic
from strobe.io.checksum import read_json

METADATA, TENSORS, VALUES, SUMS = ".metadata", "__0_0.distcp", "values.json", "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64})  ([^/\n]+)\n")

TensorIndex = dict[str, tuple[int, int]]
"""Where tensors are in torch's file, by name: offset and number of bytes."""


def write_folder(folder: Path, nest: Any) -> None:
    """Writes a nest into a folder that is not there yet; it is on the disk, whole, when this returns."""
    values, tensors = flatten_tree(nest)
    text = json.dumps({"values": values, "tensors": _write_tensors(folder, tensors)}, allow_nan=False)
    write_atomic(folder / VALUES, lambda file: file.write(text.encode()))
    sums = "".join(f"{_sha256(path)}  {path.name}\n" for path in sorted(folder.iterdir()))
    write_atomic(folder / SUMS, lambda file: file.write(sums.encode()))


def read_folder(folder: Path) -> Any:
    """The nest of a folder. One that is not as it was written is refused, and the file that differs is named."""
    check_folder(folder)
    with _format_errors(folder / VALUES):
        found = read_json(folder / VALUES)
        values, places = found["values"], {name: (int(at), int(size)) for name, (at, size) in found["tensors"].items()}
    with _format_errors(folder / TENSORS):
        tensors = _read_tensors(folder / TENSORS, places) if places else {}
    with _format_errors(folder / VALUES):
        return unflatten_tree(values, tensors)


def check_folder(folder: Path) -> None:
    """Refuses a folder with a file that is missing or not as it was written."""
    with _format_errors(folder / SUMS):
        lines = [_LINE.fullmatch(line) for line in (folder / SUMS).read_text().splitlines(keepends=True)]
        sums = {line[2]: line[1] for line in lines if line is not None}
        if None in lines or not {METADATA, VALUES} <= sums.keys() <= {METADATA, VALUES, TENSORS}:
            raise FormatError("it does not name all files of a checkpoint and nothing else")
    for name, wanted in sums.items():
        with _format_errors(folder / name):
            if _sha256(folder / name) != wanted:
                raise FormatError("it is not as it was written")


def is_intact(folder: Path) -> bool:
    """Whether a folder is as it was written."""
    try:
        check_folder(folder)
    except FormatError:
        return False
    return True


@contextmanager
def _format_errors(path: Path) -> Iterator[None]:
    """What cannot be read is the fault of a file; json and torch have many ways to say that."""
    try:
        yield
    except FileNotFoundError as error:
        raise FormatError(f"{error.filename or path} is missing") from error
    except Exception as error:
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise FormatError(f"{path} is damaged: {why}") from error


def _sha256(path: Path) -> str:
    if path.exists() and not path.is_file():
        raise FormatError("it is not a file")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_tensors(folder: Path, tensors: dict[str, Tensor]) -> TensorIndex:
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner  # much of torch: only to write
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.metadata import StorageMeta

    class Writer(FileSystemWriter):
        def storage_meta(self) -> StorageMeta | None:
            return None  # would name this machine's folder and a number of its own: the same state has the same bytes

    # torch's own order of calls. Its save() would ask all ranks, or warn that it does not: that changed with versions.
    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    writer = Writer(folder, sync_files=True, per_thread_copy_ahead=0)  # the tensors are on the CPU
    planner.set_up_planner(tensors, is_coordinator=True)
    writer.set_up_storage_writer(True)
    plans, metadata = planner.create_global_plan([writer.prepare_local_plan(planner.create_local_plan())])
    plan = planner.finish_plan(writer.prepare_global_plan(plans)[0])
    written = writer.write_data(plan, planner).wait()
    writer.finish(metadata, [written])
    return {each.index.fqn: (each.storage_data.offset, each.storage_data.length) for each in written}


def _read_tensors(path: Path, places: TensorIndex) -> dict[str, Tensor]:
    """Each tensor is a file of torch's within the file: read as a tensor, or not at all."""
    tensors = {}
    with path.open("rb") as file:
        for name, (offset, num_bytes) in places.items():
            file.seek(offset)
            if num_bytes < 0 or len(data := file.read(num_bytes)) != num_bytes:
                raise FormatError(f"the tensor {name} is not there")
            found = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
            if type(found) is not Tensor or found.layout != torch.strided:
                raise FormatError(f"{name} is no tensor")
            tensors[name] = found
    return tensors


_TENSOR, _TUPLE, _DICT, _FLOAT = "$tensor", "$tuple", "$dict", "$float"


def copy_tree(nest: Any, device: str | None = None) -> Any:
    """The same nest, its tensors in memory of their own, where they are or on another device."""
    if isinstance(nest, Tensor):
        return nest.detach().to(device or nest.device, copy=True)
    if isinstance(nest, dict):
        return {key: copy_tree(value, device) for key, value in nest.items()}
    if isinstance(nest, list | tuple):
        return type(nest)(copy_tree(value, device) for value in nest)
    return nest


def same_structure(found: Any, fresh: Any) -> bool:
    """Whether a nest that was read has the names and types of one that was made: of lists every item, of tensors the
    number type and the shape. Where one of them has None, or a list without items, the other may have anything."""
    if found is None or fresh is None:
        return True
    if isinstance(fresh, Tensor):
        return isinstance(found, Tensor) and (found.dtype, found.shape) == (fresh.dtype, fresh.shape)
    if isinstance(fresh, dict):
        return (
            isinstance(found, dict)
            and found.keys() == fresh.keys()
            and all(same_structure(found[name], value) for name, value in fresh.items())
        )
    if isinstance(fresh, list | tuple):
        return type(found) is type(fresh) and (not fresh or all(same_structure(item, fresh[0]) for item in found))
    number = type(fresh) in (int, float) and type(found) in (int, float)
    return type(found) is type(fresh) or (number and type(fresh) is float)


def flatten_tree(nest: Any) -> tuple[Any, dict[str, Tensor]]:
    """Values that JSON can say exactly, and the tensors they name.

    JSON knows neither tuples, nor keys that are numbers, nor numbers that are none: these are marked with a ``$``.
    """
    tensors: dict[str, Tensor] = {}
    return _flatten(nest, (), tensors), tensors


def unflatten_tree(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The nest that was taken apart."""
    if isinstance(value, list):
        return [unflatten_tree(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if _TENSOR in value:
        if not isinstance(value[_TENSOR], str) or value[_TENSOR] not in tensors:
            raise FormatError(f"the tensor {value[_TENSOR]} is not there")
        return tensors[value[_TENSOR]]
    if _TUPLE in value:
        return tuple(unflatten_tree(item, tensors) for item in value[_TUPLE])
    if _DICT in value:
        return {_key(key): unflatten_tree(item, tensors) for key, item in value[_DICT]}
    if _FLOAT in value:
        return float(value[_FLOAT])
    return {key: unflatten_tree(item, tensors) for key, item in value.items()}


def _key(key: Any) -> int | str:
    if type(key) not in (int, str):
        raise FormatError(f"{key!r} is no key of a dictionary")
    found: int | str = key
    return found


def _flatten(value: Any, place: tuple[str, ...], tensors: dict[str, Tensor]) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {_FLOAT: repr(value)}
    if isinstance(value, Tensor):
        return {_TENSOR: _flatten_named(value, place, tensors)}
    if kind in (list, tuple):
        items = [_flatten(item, (*place, str(k)), tensors) for k, item in enumerate(value)]
        return items if kind is list else {_TUPLE: items}
    if isinstance(value, dict) and all(type(key) in (int, str) for key in value):
        pairs = [(key, _flatten(item, (*place, str(key)), tensors)) for key, item in value.items()]
        clear = all(isinstance(key, str) and not key.startswith("$") for key in value)
        return dict(pairs) if clear else {_DICT: pairs}
    raise OptionError(
        f"{'.'.join(place)} is a {kind.__name__}, and a checkpoint holds only tensors, numbers, texts, and lists, "
        "tuples and dictionaries of them: let get_extra_state give those"
    )


def _flatten_named(value: Tensor, place: tuple[str, ...], tensors: dict[str, Tensor]) -> str:
    name = ".".join(place)
    if value.layout != torch.strided:
        raise OptionError(
            f"{name} is a sparse tensor, and a checkpoint holds only dense ones: register it with persistent=False"
        )
    while name in tensors:  # {"a.b": …} and {"a": {"b": …}} may stand in one nest
        name += "'"
    tensors[name] = value
    return name
