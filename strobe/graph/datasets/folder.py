"""Folders of data sets below the data directory, filled by download or by hand."""

from __future__ import annotations

import gzip
import os
from os import PathLike
from pathlib import Path
from typing import Literal, TextIO

import platformdirs

from strobe.errors import DownloadError
from strobe.graph.datasets.dataset import Dataset, DatasetFile
from strobe.graph.datasets.download import download, unpack, verify
from strobe.graph.progress import OnStage

DATA_DIR_VARIABLE = "STROBE_DATA"
Status = Literal["local", "downloadable", "manual"]


def data_dir(path: str | PathLike[str] | None = None) -> Path:
    """Return the data directory: ``path``, or $STROBE_DATA, or the user's cache."""
    if path is not None:
        return Path(path).expanduser()
    if from_environment := os.environ.get(DATA_DIR_VARIABLE):
        return Path(from_environment).expanduser()
    return Path(platformdirs.user_cache_dir("strobe")) / "data"


def dataset_dir(dataset: Dataset, root: Path) -> Path:
    """Return the folder of a data set, spelled with - or _."""
    name = dataset.folder or dataset.name
    for spelled in (name, name.replace("-", "_"), name.replace("_", "-")):
        if (root / spelled).is_dir():
            return root / spelled
    return root / name


def find_file(folder: Path, file: DatasetFile) -> Path | None:
    """Return the file in its folder, with or without .gz."""
    named = folder / file.path
    other = named.with_suffix("") if named.suffix == ".gz" else named.with_name(named.name + ".gz")
    return next((path for path in (named, other) if path.is_file()), None)


def open_text(path: Path) -> TextIO:
    """Open a text file, with or without .gz."""
    return gzip.open(path, "rt") if path.suffix == ".gz" else path.open()


def status(dataset: Dataset, root: Path) -> Status:
    """Return whether all files are local, can be downloaded, or must be added by hand."""
    folder = dataset_dir(dataset, root)
    missing = [file for file in dataset.files if find_file(folder, file) is None]
    missing = [file for file in missing if file.archive is None or not (folder / file.archive).is_file()]
    if not missing:
        return "local"
    return "downloadable" if all(file.urls for file in missing) else "manual"


def fetch(dataset: Dataset, root: Path, on_stage: OnStage | None = None) -> dict[str, Path]:
    """Return all files of a data set by path; download and unpack missing ones."""
    folder = dataset_dir(dataset, root)
    if status(dataset, root) == "manual":
        raise DownloadError(_manual_download_message(dataset, folder))
    paths = {}
    for file in dataset.files:
        path = find_file(folder, file) or _fetch_file(file, folder, on_stage)
        verify(path)
        paths[file.path] = path
    return paths


def _fetch_file(file: DatasetFile, folder: Path, on_stage: OnStage | None) -> Path:
    target = folder / (file.archive or file.path)
    if not target.is_file():
        _download(file, target, on_stage)
    if file.archive is None:
        return target
    verify(target)
    return unpack(target, folder / file.path)


def _download(file: DatasetFile, target: Path, on_stage: OnStage | None) -> None:
    def on_progress(done: int, total: int | None) -> None:
        if on_stage is not None:
            on_stage(f"downloading {target.name}, MiB", done >> 20, None if total is None else total >> 20)

    failures = []
    for url in file.urls:
        try:
            download(url, target, on_progress=on_progress)
        except DownloadError as error:
            failures.append(error)
        else:
            return
    raise DownloadError("\n".join(map(str, failures))) from failures[-1]


def _manual_download_message(dataset: Dataset, folder: Path) -> str:
    missing = [file for file in dataset.files if find_file(folder, file) is None]
    listed = "\n".join(f"  {folder / file.path}" for file in missing)
    return (
        f"{dataset.name} is not published at a stable address in the form that is read here. "
        f"It comes from {dataset.source}. Put by hand:\n{listed}\n"
        f"or name the directory that has {folder.name}/ with --data-dir or {DATA_DIR_VARIABLE}."
    )
