"""All data sets by name, and the one call that finds, downloads and loads one."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from strobe.errors import OptionError, UnknownNameError
from strobe.graph.datasets import citation, commits, knowledge, ogb, signals, snapshots, streams
from strobe.graph.datasets import folder as folders
from strobe.graph.datasets.dataset import Choices, DataSet, Request
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.ingest import Clock
from strobe.graph.ingest.options import Presence
from strobe.graph.progress import OnStage
from strobe.ops.csr import Parallel

_MODULES = (streams, snapshots, citation, signals, knowledge, ogb, commits)

DATA_SETS: dict[str, DataSet] = {
    found.name: found for found in sorted((s for m in _MODULES for s in m.SETS), key=lambda s: s.name.lower())
}


def find(name: str) -> DataSet:
    """The data set of a name; capitals do not matter, nor whether it is spelled with - or _."""
    spelled = {_plain(known): known for known in DATA_SETS}
    if _plain(name) not in spelled:
        raise UnknownNameError("data set", name, DATA_SETS)
    return DATA_SETS[spelled[_plain(name)]]


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
    """The graph of a data set. Files are looked for below ``data_dir`` (else $STROBE_DATA, else the user's cache);
    missing ones are downloaded there.

    With ``out`` the graph is written there and opened. ``clock``, ``life``, ``presence`` and ``repeated`` choose how
    snapshots are cut, as in ``ingest``; ``label`` which labels, ``seed`` which random edges, where a set has those.
    ``graph.info`` remembers where the data came from and what was counted in it.
    """
    dataset = find(name)
    choices = Choices(clock=clock, life=life, presence=presence, repeated=repeated, label=label, seed=seed)
    dataset.check(choices)
    target = None if out is None else Path(out)
    if target is not None and target.exists() and not overwrite:
        raise OptionError(f"{target} exists already: choose another place, or say that it may be overwritten")
    request = Request(
        files=folders.fetch(dataset, folders.data_dir(data_dir), on_stage),
        choices=choices,
        info=dataset.provenance(),
        out=target,
        overwrite=overwrite,
        on_stage=on_stage,
    )
    return dataset.loader.load(request)


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
