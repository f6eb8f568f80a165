"""Entry point of following: find the kind of a source, and resume with equal options only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from strobe.errors import InputError, OptionError, UnknownNameError
from strobe.graph.datasets import find, load
from strobe.graph.disk.growing import GrowingGraph
from strobe.graph.disk.metadata import METADATA_FILE, is_growing
from strobe.graph.disk.open import open_graph
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Degrees, find_stored
from strobe.graph.follow.base import Follower
from strobe.graph.follow.cutter import resume_cutter
from strobe.graph.follow.followers import EventFollower, GraphFollower, creation_options
from strobe.graph.follow.sources import DirectorySource, EventSource, SqliteSource, TextFileSource, is_database
from strobe.graph.ingest.clock import ByFile
from strobe.graph.ingest.options import IngestOptions
from strobe.graph.ingest.text_table import TextOptions

_COMPARED_OPTIONS = (
    "src",
    "dst",
    "time",
    "weight",
    "ids",
    "time_unit",
    "directed",
    "life",
    "repeated",
    "self_loops",
    "presence",
)


def options_identity(options: IngestOptions, text: TextOptions) -> dict[str, Any]:
    """Return the options that determine the result of a row, as JSON."""
    clock = {"clock": type(options.clock).__name__, **_clock_fields(options)}
    features = None if options.features is None else options.features.recipe()
    compared = {name: getattr(options, name) for name in _COMPARED_OPTIONS}
    return {**compared, "clock": clock, "features": features, **asdict(text)}


def check_same_identity(growing: GrowingGraph, identity: Mapping[str, Any]) -> None:
    """Raise OptionError if the graph was begun with another source or other options, naming each."""
    before = growing.info.get("follow")
    if before is None:
        raise OptionError(f"{growing.path} was not made by following a source: choose another place")
    changed = [
        f"{name} was {before.get(name)!r} and is {identity.get(name)!r}"
        for name in {**before, **identity}
        if before.get(name) != identity.get(name)
    ]
    if changed:
        raise OptionError(
            f"{growing.path} was begun with other options: {'; '.join(changed)}. "
            "Go on with the same ones, or choose another place."
        )


def check_can_follow(options: IngestOptions, *, files: bool) -> None:
    """Refuse options that concern all nodes or all of time, since more will come."""
    if options.presence == "always":
        raise OptionError("presence 'always' needs all nodes from the beginning, and more will come: choose 'seen'")
    if options.nodes is not None:
        raise OptionError("a node table speaks of all nodes, and more will come: leave it out")
    if not options.renumber or options.num_nodes is not None:
        raise OptionError("nodes are numbered in the order in which they come: leave renumber on")
    if find_stored(options.features) is not None:
        raise OptionError("features of nodes that will come are not known: choose derived ones, such as Degrees()")
    if isinstance(options.clock, ByFile) and not files:
        raise OptionError("a snapshot per file needs a directory in which files arrive")


def _clock_fields(options: IngestOptions) -> dict[str, Any]:
    dataset = {item.name: getattr(options.clock, item.name) for item in fields(options.clock)}  # type: ignore[arg-type]
    return {name: list(value) if isinstance(value, tuple | range) else value for name, value in dataset.items()}


_NOT_APPENDABLE = (".gz", ".parquet", ".pq", ".npz")


def follow(
    source: DynamicGraph | str | PathLike[str],
    options: IngestOptions | None = None,
    *,
    into: str | PathLike[str],
    table: str | None = None,
    text: TextOptions | None = None,
    skip_bad_rows: bool = False,
    memory: str = "512MB",
    data_dir: str | PathLike[str] | None = None,
) -> Follower:
    """Follow a source and grow a graph at ``into``, or resume a graph that is there.

    The result equals that of ``ingest`` on the same rows, except that nodes are numbered in order of arrival.

    Args:
        source: events in a directory of arriving files, a growing text file or an SQLite database; or snapshots of a
            graph, saved or growing, or of a data set by name.
        into: directory of the growing graph.
        options: columns and clock of events, as for ``ingest``; None for snapshots.
        table: table of the SQLite database.
        text: format of text files.
        skip_bad_rows: count bad rows and write them to a file instead of raising.
        memory: memory limit of the database.
        data_dir: where data sets are.
    """
    if isinstance(source, DynamicGraph):
        return _follow_graph(source, {"source": None}, into, options)
    path = Path(source).resolve()
    if not path.exists():
        return _follow_dataset(str(source), into, options, data_dir)
    if (path / METADATA_FILE).is_file():
        snapshots = GrowingGraph(path) if is_growing(path) else open_graph(path)
        return _follow_graph(snapshots, {"source": str(path)}, into, options)
    if options is None:
        raise OptionError(f"{path} holds events: say which columns they have and how time is cut into snapshots")
    return _follow_events(path, options, into, table, text or TextOptions(), skip_bad_rows, memory)


def _follow_events(
    path: Path,
    options: IngestOptions,
    into: str | PathLike[str],
    table: str | None,
    text: TextOptions,
    skip_bad_rows: bool,
    memory: str,
) -> Follower:
    check_can_follow(options, files=path.is_dir())
    resume_cutter(options.clock, None, ())  # refuses a clock that cannot be followed
    if Path(into).resolve().is_relative_to(path):
        raise OptionError(f"the graph cannot grow in {path}, which is followed: choose another place")
    feed = _open_source(path, options, table, text)
    made = {
        "directed": options.directed,
        "weighted": options.weight is not None or options.parallel == "count",
        "features": options.features or Degrees(log=True),
    }
    info = {**(options.info or {}), "repeated": options.parallel, "life": options.life}
    make = partial(EventFollower, feed, options, skip_bad_rows=skip_bad_rows, memory=memory)
    return _open_follower(make, into, {**feed.identity(), **options_identity(options, text)}, info, made)


def _open_source(path: Path, options: IngestOptions, table: str | None, text: TextOptions) -> EventSource:
    if path.is_file() and is_database(path):
        return SqliteSource(path, table)
    if table is not None:
        raise OptionError(f"{path} is no SQLite database: it has no table {table!r}")
    if path.is_dir():
        return DirectorySource(path, text, options.columns())
    if path.suffix in _NOT_APPENDABLE:
        raise InputError(f"{path} cannot grow line by line: put such files into a directory, and follow that")
    return TextFileSource(path, text, options.columns())


def _follow_dataset(
    name: str, into: str | PathLike[str], options: IngestOptions | None, data_dir: str | PathLike[str] | None
) -> Follower:
    try:
        dataset = find(name).name
    except UnknownNameError as error:
        raise InputError(f"there is nothing at {name}, and no data set of that name: {error}") from None
    return _follow_graph(load(dataset, data_dir=data_dir), {"source": dataset}, into, options)


def _follow_graph(
    source: DynamicGraph | GrowingGraph,
    identity: dict[str, Any],
    into: str | PathLike[str],
    options: IngestOptions | None,
) -> Follower:
    if options is not None:
        raise OptionError("a graph comes in snapshots of its own: there are no columns and no clock to choose")
    if isinstance(source, GrowingGraph) and source.path == Path(into).resolve():
        raise OptionError(f"{source.path} cannot be followed into itself: choose another place")
    return _open_follower(partial(GraphFollower, source), into, identity, source.info, creation_options(source))


def _open_follower(
    make: Callable[[GrowingGraph], Follower],
    into: str | PathLike[str],
    identity: Mapping[str, Any],
    info: Mapping[str, Any],
    made: Mapping[str, Any],
) -> Follower:
    """Open the graph to grow as its only writer, or create it, and follow."""
    target = Path(into).resolve()
    if is_growing(target):
        graph = GrowingGraph(target)
        check_same_identity(graph, identity)
        graph.acquire()
    else:
        graph = GrowingGraph.create(target, info={**info, "follow": dict(identity)}, **made)
    try:
        return make(graph)
    except BaseException:
        graph.close()
        raise
