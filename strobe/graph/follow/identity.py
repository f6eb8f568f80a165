"""What a graph was begun with: going on with something else is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from strobe.errors import OptionError
from strobe.graph.features import given
from strobe.graph.growing import Growing
from strobe.graph.ingest.clock import ByFile
from strobe.graph.ingest.options import Options
from strobe.graph.ingest.text_table import TextOptions

_COMPARED = (
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


def options_identity(options: Options, text: TextOptions) -> dict[str, Any]:
    """Options as JSON, for those that decide what becomes of a row."""
    clock = {"clock": type(options.clock).__name__, **_clock_fields(options)}
    features = None if options.features is None else options.features.recipe()
    compared = {name: getattr(options, name) for name in _COMPARED}
    return {**compared, "clock": clock, "features": features, **asdict(text)}


def refuse_others(growing: Growing, identity: Mapping[str, Any]) -> None:
    """Raises where a graph was begun with another source or other options, naming each."""
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


def refuse_what_must_be_known_before(options: Options, *, files: bool) -> None:
    """Raises for options that speak of all nodes or of all time: more will come."""
    if options.presence == "always":
        raise OptionError("presence 'always' needs all nodes from the beginning, and more will come: choose 'seen'")
    if options.nodes is not None:
        raise OptionError("a node table speaks of all nodes, and more will come: leave it out")
    if not options.renumber or options.num_nodes is not None:
        raise OptionError("nodes are numbered in the order in which they come: leave renumber on")
    if given(options.features) is not None:
        raise OptionError("features of nodes that will come are not known: choose derived ones, such as Degrees()")
    if isinstance(options.clock, ByFile) and not files:
        raise OptionError("a snapshot per file needs a directory in which files arrive")


def _clock_fields(options: Options) -> dict[str, Any]:
    found = {item.name: getattr(options.clock, item.name) for item in fields(options.clock)}  # type: ignore[arg-type]
    return {name: list(value) if isinstance(value, tuple | range) else value for name, value in found.items()}
