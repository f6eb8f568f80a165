"""``strobe cache``: the cache of results that do not depend on weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from strobe.cli.console import out, print_json, print_note, print_result
from strobe.cli.options.groups import option
from strobe.cli.options.run import AsJsonOption
from strobe.errors import UnknownNameError
from strobe.format import file_size
from strobe.io.cache import Cache, CacheEntry

KINDS = {
    "fit": "what tasks fit to training snapshots",
    "baselines": "metrics of predictors without learning",
    "partition": "owners of cells",
    "memory": "estimated memory of models",
    "workload": "predictors of seconds on this machine",
}
_KIND_HELP = "Only entries of a kind: " + ", ".join(f"{kind} ({what})" for kind, what in KINDS.items()) + "."
_MAX_NAMES = 3


def cache(
    kind: Annotated[str | None, typer.Argument(metavar="KIND", help=_KIND_HELP)] = None,
    clear: Annotated[bool, option("Remove the entries.", "--clear")] = False,
    as_json: AsJsonOption = False,
) -> None:
    """Show or clear the cache of results that runs on the same graph share.

    A second run on a graph starts at once: what tasks fit to it, metrics of baselines, partitions and memory estimates
    are read instead of computed. An entry is used only for the same contents of the graph, options, code and processor:
    a run has equal results with and without the cache. `strobe train --no-cache` neither reads nor writes it.

    `strobe cache`

    `strobe cache --clear baselines`

    `strobe cache --clear`

    The folder is `$STROBE_CACHE_DIR`, by default in the user's cache folder. Entries used least recently are removed
    beyond `$STROBE_CACHE_LIMIT` (such as 500M; 0: no cache), by default 4 GiB.
    """
    if kind is not None and kind not in KINDS:
        raise UnknownNameError("kind of entries", kind, KINDS)
    users = Cache.of_user()
    if clear:
        removed = users.clear(kind)
        size = sum(entry.size for entry in removed)
        if as_json:
            print_json({"folder": str(users.folder), "removed": len(removed), "bytes": size})
        else:
            print_result(f"removed {_count(len(removed))}, {file_size(size)}, from {users.folder}")
        return
    _show(users, users.entries(), KINDS if kind is None else [kind], as_json)


def _show(users: Cache, entries: Sequence[CacheEntry], kinds: Iterable[str], as_json: bool) -> None:
    rows = [_row(kind, [entry for entry in entries if entry.kind == kind]) for kind in kinds]
    rows = [row for row in rows if row["entries"]]
    total = sum(row["bytes"] for row in rows)
    if as_json:
        print_json({"folder": str(users.folder), "limit": users.limit_bytes, "bytes": total, "kinds": rows})
        return
    if rows:
        out.print(_table(rows), highlight=False)
    number = sum(row["entries"] for row in rows)
    print_result(f"{_count(number)}, {file_size(total)} of {file_size(users.limit_bytes)}, in {users.folder}")
    print_note("Next: strobe cache --clear" if rows else "Next: strobe train fills the cache")


def _row(kind: str, entries: Sequence[CacheEntry]) -> dict[str, Any]:
    return {
        "kind": kind,
        "entries": len(entries),
        "bytes": sum(entry.size for entry in entries),
        "last_used": max((entry.last_used for entry in entries), default=0.0),
        "of": sorted({entry.subject for entry in entries}),
    }


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in ("kind", "entries", "size", "last used", "of"):
        table.add_column(column, justify="right" if column in ("entries", "size") else "left")
    for row in rows:
        used = datetime.fromtimestamp(row["last_used"]).strftime("%Y-%m-%d %H:%M")
        names, more = row["of"][:_MAX_NAMES], len(row["of"]) - _MAX_NAMES
        shown = ", ".join(names) + (f" and {more} more" if more > 0 else "")
        table.add_row(row["kind"], f"{row['entries']:,}", file_size(row["bytes"]), used, shown)
    return table


def _count(number: int) -> str:
    return "1 entry" if number == 1 else f"{number:,} entries"
