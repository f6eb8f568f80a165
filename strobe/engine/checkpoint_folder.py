"""A checkpoint on disk: a folder that torch.distributed.checkpoint reads, and beside it what is no tensor.

``.metadata`` and ``__0_0.distcp`` are torch's, ``values.json`` is the nest that the tensors stand in, ``SHA256SUMS``
says what all of them must be (``sha256sum -c`` checks it, too). torch would read its metadata, and every value that is
no tensor, as a pickle, which may run anything: here the metadata may name only what metadata is made of, values are
JSON, and nothing is ever run. No rank talks to another: one has everything.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata

from strobe.atomic import write_whole
from strobe.engine.nest import put_together, taken_apart
from strobe.errors import FormatError

METADATA, VALUES, SUMS = ".metadata", "values.json", "SHA256SUMS"

_DESCRIPTIONS = (
    "ChunkStorageMetadata",
    "Metadata",
    "MetadataIndex",
    "StorageMeta",
    "TensorProperties",
    "TensorStorageMetadata",
    "_MEM_FORMAT_ENCODING",
)
_PLAIN = {
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    *(("torch.distributed.checkpoint.metadata", name) for name in _DESCRIPTIONS),
}
"""All that torch's metadata names: records of plain values, and kinds of tensors."""


def write_folder(folder: Path, nest: Any) -> None:
    """Writes a nest into a folder that is not there yet; it is on the disk, whole, when this returns."""
    values, tensors = taken_apart(nest)
    text = json.dumps(values, allow_nan=False)
    _write_tensors(folder, tensors)
    write_whole(folder / VALUES, lambda file: file.write(text.encode()))
    sums = "".join(f"{_sum(path)}  {path.name}\n" for path in sorted(folder.iterdir()))
    write_whole(folder / SUMS, lambda file: file.write(sums.encode()))


def read_folder(folder: Path) -> Any:
    """The nest of a folder. One that is not as it was written is refused, and the file that differs is named."""
    check_folder(folder)
    with _blaming(folder / METADATA):
        metadata = _MetadataReader(io.BytesIO((folder / METADATA).read_bytes())).load()
    with _blaming(folder):
        tensors = _read_tensors(folder, metadata)
    with _blaming(folder / VALUES):
        return put_together(json.loads((folder / VALUES).read_text()), tensors)


def check_folder(folder: Path) -> None:
    """Refuses a folder with a file that is missing or not as it was written."""
    with _blaming(folder / SUMS):
        lines = [line.split("  ", 1) for line in (folder / SUMS).read_text().splitlines()]
        sums = {name: wanted for wanted, name in lines}
        if not {METADATA, VALUES} < sums.keys():
            raise FormatError("it does not name all files")
    for name, wanted in sums.items():
        with _blaming(folder / name):
            if _sum(folder / name) != wanted:
                raise FormatError("it is not as it was written")


def is_whole(folder: Path) -> bool:
    """Whether a folder is as it was written."""
    try:
        check_folder(folder)
    except FormatError:
        return False
    return True


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """What cannot be read is the fault of a file; json, pickle and torch have many ways to say that."""
    try:
        yield
    except FileNotFoundError as error:
        raise FormatError(f"{error.filename or path} is missing") from error
    except Exception as error:
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise FormatError(f"{path} is damaged: {why}") from error


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Writer(FileSystemWriter):
    def storage_meta(self) -> StorageMeta | None:
        return None  # it would name this machine's folder and a number of its own: the same state has the same bytes


def _write_tensors(folder: Path, tensors: dict[str, Tensor]) -> None:
    # torch's own order of calls. Its save() would ask all ranks, or warn that it does not: that changed with versions.
    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    writer = _Writer(folder, sync_files=True, per_thread_copy_ahead=0)  # the tensors are on the CPU
    planner.set_up_planner(tensors, is_coordinator=True)
    writer.set_up_storage_writer(True)
    plans, metadata = planner.create_global_plan([writer.prepare_local_plan(planner.create_local_plan())])
    plan = planner.finish_plan(writer.prepare_global_plan(plans)[0])
    writer.finish(metadata, [writer.write_data(plan, planner).wait()])


def _read_tensors(folder: Path, metadata: Metadata) -> dict[str, Tensor]:
    tensors = {}
    for name, described in metadata.state_dict_metadata.items():
        if not isinstance(described, TensorStorageMetadata):
            raise FormatError(f"{name} is no tensor")  # and torch would unpickle it
        tensors[name] = torch.empty(described.size, dtype=described.properties.dtype)
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    reader = FileSystemReader(folder)
    planner.set_up_planner(tensors, metadata, is_coordinator=True)
    reader.set_up_storage_reader(metadata, True)
    plans = planner.create_global_plan([reader.prepare_local_plan(planner.create_local_plan())])
    plan = planner.finish_plan(reader.prepare_global_plan(plans)[0])
    reader.read_data(plan, planner).wait()
    return tensors


class _MetadataReader(pickle.Unpickler):
    """Reads a pickle that may name only what torch's metadata is made of."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PLAIN:
            return super().find_class(module, name)
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        raise FormatError(f"it names {module}.{name}, which metadata does not")
