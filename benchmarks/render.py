"""Writes the figures of the newest records, and the catalogue, into the documents: ``python -m benchmarks.render``.

A document says where, between ``<!-- figures: NAME -->`` and ``<!-- end -->``; numbers there are never typed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from benchmarks.record import RESULTS
from strobe.graph.datasets import DATA_SETS

ROOT = RESULTS.parent.parent
DOCUMENTS = ("README.md", "docs/data.md")
_MARKED = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def ingest() -> list[str]:
    """The table of benchmarks/ingest.py."""
    record: dict[str, Any] = json.loads((RESULTS / "ingest.json").read_text())
    figures, samples = record["figures"], record["samples"]
    written, opened = samples["write"], samples["open"]
    return [
        "| question | answer |",
        "|---|---|",
        f"| {samples['events']:,} events, CSV to graph on disk | {figures['ingest_rows_per_s']:,.0f} rows/s, "
        f"{figures['ingest_speedup']:.1f} times as fast as pandas |",
        f"| its peak memory | {figures['ingest_peak_gib']:.2f} GiB, "
        f"{figures['ingest_memory_ratio']:.2f} of what pandas takes |",
        f"| generate and write {written['nodes']:,} nodes, {written['edges']:,} edges | {written['seconds']:.0f} s, "
        f"peak memory {figures['big_write_gib']:.2f} GiB |",
        f"| open it ({opened['bytes'] / 2**30:.2f} GiB) | {1000 * figures['big_open_s']:.1f} ms, "
        f"{figures['big_open_mib']:.1f} MiB |",
    ]


def datasets() -> list[str]:
    """The catalogue of data sets."""
    rows = [
        f"| `{known.name}` | {known.title} | {known.nodes:,} | {known.edges:,} | {known.snapshots:,} "
        f"| {', '.join(known.tasks)} |"
        for known in sorted(DATA_SETS.values(), key=lambda known: known.name)
    ]
    return ["| name | what | nodes | edges | snapshots | tasks |", "|---|---|---|---|---|---|", *rows]


TABLES: dict[str, Callable[[], list[str]]] = {"ingest": ingest, "datasets": datasets}


def rendered(text: str) -> str:
    """The document with its figures as the records have them."""
    return _MARKED.sub(lambda match: match[1] + "\n".join(TABLES[match[2]]()) + "\n" + match[3], text)


def main() -> None:
    """Renders all documents."""
    for name in DOCUMENTS:
        document = ROOT / name
        document.write_text(rendered(document.read_text()))
        print(f"rendered {name}")


if __name__ == "__main__":
    main()
