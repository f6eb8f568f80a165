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
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from strobe.engine.nest import put_together, taken_apart
from strobe.errors import FormatError
from strobe.io.atomic import write_whole
from strobe.io.sealed import read_json

METADATA, TENSORS, VALUES, SUMS = ".metadata", "__0_0.distcp", "values.json", "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64})  ([^/\n]+)\n")

Places = dict[str, tuple[int, int]]
"""Where tensors are in torch's file, by name: offset and number of bytes."""


def write_folder(folder: Path, nest: Any) -> None:
    """Writes a nest into a folder that is not there yet; it is on the disk, whole, when this returns."""
    values, tensors = taken_apart(nest)
    text = json.dumps({"values": values, "tensors": _write_tensors(folder, tensors)}, allow_nan=False)
    write_whole(folder / VALUES, lambda file: file.write(text.encode()))
    sums = "".join(f"{_sum(path)}  {path.name}\n" for path in sorted(folder.iterdir()))
    write_whole(folder / SUMS, lambda file: file.write(sums.encode()))


def read_folder(folder: Path) -> Any:
    """The nest of a folder. One that is not as it was written is refused, and the file that differs is named."""
    check_folder(folder)
    with _blaming(folder / VALUES):
        found = read_json(folder / VALUES)
        values, places = found["values"], {name: (int(at), int(size)) for name, (at, size) in found["tensors"].items()}
    with _blaming(folder / TENSORS):
        tensors = _read_tensors(folder / TENSORS, places) if places else {}
    with _blaming(folder / VALUES):
        return put_together(values, tensors)


def check_folder(folder: Path) -> None:
    """Refuses a folder with a file that is missing or not as it was written."""
    with _blaming(folder / SUMS):
        lines = [_LINE.fullmatch(line) for line in (folder / SUMS).read_text().splitlines(keepends=True)]
        sums = {line[2]: line[1] for line in lines if line is not None}
        if None in lines or not {METADATA, VALUES} <= sums.keys() <= {METADATA, VALUES, TENSORS}:
            raise FormatError("it does not name all files of a checkpoint and nothing else")
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
    """What cannot be read is the fault of a file; json and torch have many ways to say that."""
    try:
        yield
    except FileNotFoundError as error:
        raise FormatError(f"{error.filename or path} is missing") from error
    except Exception as error:
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise FormatError(f"{path} is damaged: {why}") from error


def _sum(path: Path) -> str:
    if path.exists() and not path.is_file():
        raise FormatError("it is not a file")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_tensors(folder: Path, tensors: dict[str, Tensor]) -> Places:
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


def _read_tensors(path: Path, places: Places) -> dict[str, Tensor]:
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
