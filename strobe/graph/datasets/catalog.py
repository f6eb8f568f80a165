"""All data sets by name, and the call that finds, downloads and loads one."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from strobe.errors import OptionError, UnknownNameError
from strobe.graph.datasets import citation, loaders, signals, static
from strobe.graph.datasets import folder as folders
from strobe.graph.datasets.dataset import Dataset, DatasetFile, DatasetOptions, Loader, LoadRequest
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.ingest import ByColumn, Calendar, Clock, Every, Into, TextOptions
from strobe.graph.ingest.options import Presence
from strobe.graph.progress import OnStage
from strobe.ops.sparse.csr import Parallel

_LOADERS: dict[str, Callable[..., Loader]] = {
    loader.__name__: loader
    for loader in (
        loaders.EventTable,
        loaders.KonectEdges,
        loaders.DailyRouters,
        loaders.Commits,
        loaders.Coauthors,
        citation.DatedPubmed,
        citation.DatedCora,
        citation.DatedPapers,
        citation.HugeDatedPapers,
        signals.SignalFiles,
        static.SimulatedGrowth,
    )
}
_READERS: dict[str, Callable[[LoadRequest], Any]] = {**static.READERS, **signals.READERS}
_CLOCKS: dict[str, Callable[..., Clock]] = {"every": Every, "per": Calendar, "into": Into, "by": ByColumn}


def _parse_dataset(name: str, entry: Mapping[str, Any]) -> Dataset:
    """Make a data set from its table in catalog.toml."""
    fields = dict(entry)
    fields["nodes"], fields["edges"], fields["snapshots"] = fields.pop("counts")
    urls, archive, paths = fields.pop("urls", ()), fields.pop("archive", None), fields.pop("files")
    fields["files"] = tuple(
        DatasetFile(path=path, urls=tuple(url.format(path=path) for url in urls), archive=archive) for path in paths
    )
    return Dataset(**{**fields, "name": name, "tasks": tuple(entry["tasks"]), "loader": _make_loader(entry["loader"])})


def _make_loader(entry: Mapping[str, Any]) -> Loader:
    options = dict(entry)
    kind = _LOADERS[options.pop("kind")]
    if "clock" in options:
        [(unit, value)] = options["clock"].items()
        options["clock"] = _CLOCKS[unit](value)
    if "read" in options:
        options["read"] = _READERS[options["read"]]
    if "text" in options.get("options", {}):
        options["options"] = {**options["options"], "text": TextOptions(**options["options"]["text"])}
    return kind(**options)


_CATALOG = tomllib.loads(Path(__file__).with_name("catalog.toml").read_text(encoding="utf-8"))

DATASETS: dict[str, Dataset] = {
    name: _parse_dataset(name, _CATALOG[name]) for name in sorted(_CATALOG, key=lambda name: name.lower())
}


def find(name: str) -> Dataset:
    """Return the data set of a name, in any case and spelled with - or _."""
    spelled = {_normalize_name(known): known for known in DATASETS}
    if _normalize_name(name) not in spelled:
        raise UnknownNameError("data set", name, DATASETS)
    return DATASETS[spelled[_normalize_name(name)]]


def load(
    name: str,
    *,
    data_dir: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    overwrite: bool = False,
    on_stage: OnStage | None = None,
    clock: Clock | None = None,
    life: int | None = None,
    presence: Presence | None = None,
    repeated: Parallel | None = None,
    label: str | None = None,
    seed: int | None = None,
) -> DynamicGraph:
    """Load the graph of a data set by name.

    Args:
        name: name of the data set.
        data_dir: directory of the files (default: $STROBE_DATA, or the user's cache); missing files are downloaded
            there.
        out: directory to write the graph to (default: memory).
        clock, life, presence, repeated: how snapshots are cut, as in ``ingest``.
        label: which labels, if the set has several.
        seed: which random edges, if the set is simulated.
    """
    dataset = find(name)
    choices = DatasetOptions(clock=clock, life=life, presence=presence, repeated=repeated, label=label, seed=seed)
    dataset.check(choices)
    target = None if out is None else Path(out)
    if target is not None and target.exists() and not overwrite:
        raise OptionError(f"{target} exists already: choose another place, or say that it may be overwritten")
    request = LoadRequest(
        files=folders.fetch(dataset, folders.data_dir(data_dir), on_stage),
        choices=choices,
        info=dataset.provenance(),
        out=target,
        overwrite=overwrite,
        on_stage=on_stage,
    )
    return dataset.loader.load(request)


def _normalize_name(name: str) -> str:
    return name.lower().replace("_", "-")
