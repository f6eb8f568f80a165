"""Where data sets lie: one folder each below the data directory, filled by download or by hand."""

from __future__ import annotations

import gzip
import os
from os import PathLike
from pathlib import Path
from typing import Literal, TextIO

from strobe.errors import DownloadError
from strobe.graph.datasets.archive import unpack
from strobe.graph.datasets.dataset import DataSet, File
from strobe.graph.datasets.download import download, verify
from strobe.graph.progress import OnStage

VARIABLE = "STROBE_DATA"
Status = Literal["here", "download", "by hand"]


def data_dir(given: str | PathLike[str] | None = None) -> Path:
    """The data directory: what is given, else $STROBE_DATA, else the user's cache."""
    if given is not None:
        return Path(given).expanduser()
    if from_environment := os.environ.get(VARIABLE):
        return Path(from_environment).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("strobe")) / "data"


def where(dataset: DataSet, root: Path) -> Path:
    """The folder of a data set; both spellings of a name, with - and with _, are looked for."""
    name = dataset.folder or dataset.name
    for spelled in (name, name.replace("-", "_"), name.replace("_", "-")):
        if (root / spelled).is_dir():
            return root / spelled
    return root / name


def locate(folder: Path, file: File) -> Path | None:
    """The file in its folder, as it is named, or packed or unpacked with gzip."""
    named = folder / file.path
    other = named.with_suffix("") if named.suffix == ".gz" else named.with_name(named.name + ".gz")
    return next((path for path in (named, other) if path.is_file()), None)


def open_text(path: Path) -> TextIO:
    """A text file, packed with gzip or not."""
    return gzip.open(path, "rt") if path.suffix == ".gz" else path.open()


def status(dataset: DataSet, root: Path) -> Status:
    """Whether all files are here, can be downloaded, or must be put there by hand."""
    folder = where(dataset, root)
    missing = [file for file in dataset.files if locate(folder, file) is None]
    missing = [file for file in missing if file.archive is None or not (folder / file.archive).is_file()]
    if not missing:
        return "here"
    return "download" if all(file.urls for file in missing) else "by hand"


def fetch(dataset: DataSet, root: Path, on_stage: OnStage | None = None) -> dict[str, Path]:
    """All files of a data set by their paths in it; what is missing is downloaded and unpacked."""
    folder = where(dataset, root)
    if status(dataset, root) == "by hand":
        raise DownloadError(_by_hand(dataset, folder))
    found = {}
    for file in dataset.files:
        path = locate(folder, file) or _get(file, folder, on_stage)
        verify(path)
        found[file.path] = path
    return found


def _get(file: File, folder: Path, on_stage: OnStage | None) -> Path:
    target = folder / file.downloaded
    if not target.is_file():
        _download(file, target, on_stage)
    if file.archive is None:
        return target
    verify(target)
    return unpack(target, folder / file.path)


def _download(file: File, target: Path, on_stage: OnStage | None) -> None:
    def on_progress(done: int, total: int | None) -> None:
        if on_stage is not None:
            on_stage(f"downloading {target.name}, MiB", done >> 20, None if total is None else total >> 20)

    failures = []
    for url in file.urls:
        try:
            download(url, target, sha256=file.sha256, on_progress=on_progress)
        except DownloadError as error:
            failures.append(error)
        else:
            return
    if len(failures) == 1:
        raise failures[0]
    raise DownloadError("\n".join(str(error) for error in failures))


def _by_hand(dataset: DataSet, folder: Path) -> str:
    missing = [file for file in dataset.files if locate(folder, file) is None]
    listed = "\n".join(f"  {folder / file.path}" for file in missing)
    return (
        f"{dataset.name} is not published at a stable address in the form that is read here. "
        f"It comes from {dataset.source}. Put by hand:\n{listed}\n"
        f"or name the directory that has {folder.name}/ with --data-dir or {VARIABLE}."
    )
