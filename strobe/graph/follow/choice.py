"""Which way a source is followed."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from strobe.errors import InputError, OptionError, UnknownNameError
from strobe.graph.description import META, is_growing
from strobe.graph.disk import open_graph
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Degrees
from strobe.graph.follow.base import Following
from strobe.graph.follow.cutting import resumed
from strobe.graph.follow.directory import Directory
from strobe.graph.follow.events import FollowingEvents
from strobe.graph.follow.feed import Feed
from strobe.graph.follow.identity import options_identity, refuse_others, refuse_what_must_be_known_before
from strobe.graph.follow.snapshots import FollowingGraph, made_like
from strobe.graph.follow.sqlite import SqliteTable, is_database
from strobe.graph.follow.text_file import TextFile
from strobe.graph.growing import Growing
from strobe.graph.ingest.options import Options
from strobe.graph.ingest.text_table import TextOptions

_NO_LINES = (".gz", ".parquet", ".pq", ".npz")


def follow(
    source: DynamicGraph | str | PathLike[str],
    options: Options | None = None,
    *,
    into: str | PathLike[str],
    table: str | None = None,
    text: TextOptions | None = None,
    skip_bad_rows: bool = False,
    memory: str = "512MB",
    data_dir: str | PathLike[str] | None = None,
) -> Following:
    """Follows a source and grows a graph at ``into``, or goes on with the one that is there.

    ``source`` is a directory in which files arrive, a text file that grows, an SQLite database with a ``table`` to
    which rows are appended: events, of which ``options`` say what ``ingest`` wants to know. Or it is a graph, saved or
    growing, or a data set by name, whose snapshots arrive; there is nothing to say about it.

    The result is what ``ingest`` makes of the same rows, only that nodes are numbered in the order in which they come.
    """
    if isinstance(source, DynamicGraph):
        return _graph(source, {"source": None}, into, options)
    path = Path(source).resolve()
    if not path.exists():
        return _data_set(str(source), into, options, data_dir)
    if (path / META).is_file():
        snapshots = Growing(path) if is_growing(path) else open_graph(path)
        return _graph(snapshots, {"source": str(path)}, into, options)
    if options is None:
        raise OptionError(f"{path} holds events: say which columns they have and how time is cut into snapshots")
    return _events(path, options, into, table, text or TextOptions(), skip_bad_rows, memory)


def _events(
    path: Path,
    options: Options,
    into: str | PathLike[str],
    table: str | None,
    text: TextOptions,
    skip_bad_rows: bool,
    memory: str,
) -> Following:
    refuse_what_must_be_known_before(options, files=path.is_dir())
    resumed(options.clock, None, ())  # refuses a clock that cannot be followed
    if Path(into).resolve().is_relative_to(path):
        raise OptionError(f"the graph cannot grow in {path}, which is followed: choose another place")
    feed = _feed(path, options, table, text)
    made = {
        "directed": options.directed,
        "weighted": options.weight is not None or options.merging == "count",
        "features": options.features or Degrees(log=True),
    }
    info = {**options.info, "repeated": options.merging, "life": options.life}
    graph = _target(into, {**feed.identity(), **options_identity(options, text)}, info, made)
    try:
        return FollowingEvents(feed, options, graph, skip_bad_rows=skip_bad_rows, memory=memory)
    except BaseException:
        graph.close()
        raise


def _feed(path: Path, options: Options, table: str | None, text: TextOptions) -> Feed:
    if path.is_file() and is_database(path):
        return SqliteTable(path, table)
    if table is not None:
        raise OptionError(f"{path} is no SQLite database: it has no table {table!r}")
    if path.is_dir():
        return Directory(path, text, options.columns())
    if path.suffix in _NO_LINES:
        raise InputError(f"{path} cannot grow line by line: put such files into a directory, and follow that")
    return TextFile(path, text, options.columns())


def _data_set(
    name: str, into: str | PathLike[str], options: Options | None, data_dir: str | PathLike[str] | None
) -> Following:
    from strobe.graph.datasets import find, load

    try:
        found = find(name).name
    except UnknownNameError as error:
        raise InputError(f"there is nothing at {name}, and no data set of that name: {error}") from None
    return _graph(load(found, data_dir=data_dir), {"source": found}, into, options)


def _graph(
    source: DynamicGraph | Growing, identity: dict[str, Any], into: str | PathLike[str], options: Options | None
) -> Following:
    if options is not None:
        raise OptionError("a graph comes in snapshots of its own: there are no columns and no clock to choose")
    if isinstance(source, Growing) and source.path == Path(into).resolve():
        raise OptionError(f"{source.path} cannot be followed into itself: choose another place")
    graph = _target(into, identity, source.info, made_like(source))
    try:
        return FollowingGraph(source, graph)
    except BaseException:
        graph.close()
        raise


def _target(
    into: str | PathLike[str], identity: Mapping[str, Any], info: Mapping[str, Any], made: Mapping[str, Any]
) -> Growing:
    """The graph to grow, which nobody else writes: the one that is there, or a new one."""
    target = Path(into).resolve()
    if not is_growing(target):
        return Growing.create(target, info={**info, "follow": dict(identity)}, **made)
    graph = Growing(target)
    refuse_others(graph, identity)
    graph.claim()
    return graph
