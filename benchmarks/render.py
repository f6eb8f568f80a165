"""Writes the figures of the newest records, and the catalogue, into the documents: ``python -m benchmarks.render``.

A document says where, between ``<!-- figures: NAME -->`` and ``<!-- end -->``; numbers there are never typed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from benchmarks import (
    dgc,
    dgc_tables,
    distdy,
    distdy_tables,
    dygnex,
    dygnex_tables,
    dynahb,
    dynahb_tables,
    flare,
    flare_tables,
    gpu_tables,
    quality_tables,
    reliability_tables,
    tables,
)
from benchmarks.record import RESULTS

ROOT = RESULTS.parent.parent
DOCUMENTS = (
    "README.md",
    *(
        f"docs/{name}.md"
        for name in (
            "data",
            "tasks",
            "training",
            "online",
            "measuring",
            "results",
            "protocols",
            "clusters",
            "architecture",
            "gpu",
            "reliability",
        )
    ),
    *(f"docs/axes/{axis}.md" for axis in ("store", "placement", "batching", "exchange", "schedule", "sync")),
    "docs/presets/dgc.md",
    "docs/presets/distdy.md",
    "docs/presets/dygnex.md",
    "docs/presets/dynahb.md",
    "docs/presets/flare.md",
)
PICTURE = ROOT / "docs/online.svg"
_MARKED = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def _record(name: str) -> dict[str, Any]:
    """The newest record of a benchmark."""
    record: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return record


TABLES: dict[str, Callable[[], list[str]]] = {
    "gpu": lambda: gpu_tables.figures(_record("gpu")),
    "gpu_memory": lambda: gpu_tables.memory(_record("gpu_memory")),
    "gpu_products": lambda: gpu_tables.products(_record("gpu")),
    "gpu_steps": lambda: gpu_tables.steps(_record("gpu")),
    "nccl": lambda: gpu_tables.nccl(_record("nccl")),
    "protocols": lambda: tables.protocols(_record("protocols")),
    "tied_ranks": lambda: tables.tied_ranks(_record("tied_ranks")),
    "quality": lambda: quality_tables.quality(_record("quality")),
    "quality_links": lambda: quality_tables.links(_record("quality")),
    "peers": lambda: tables.peers(_record("peers")),
    "epoch": lambda: tables.epoch(_record("epoch")),
    "startup": lambda: tables.startup(_record("startup")),
    "linear": lambda: tables.linear(_record("linear")),
    "ranks": lambda: tables.ranks(_record("scaling")),
    "relay_rows": lambda: tables.relay_rows(_record("scaling")),
    "hosts": lambda: tables.hosts(_record("hosts")),
    "dgc": lambda: tables.beside_paper(_record("dgc"), dgc_tables.FIGURES, dgc.PAPER),
    "dgc_bytes": lambda: dgc_tables.sent(_record("dgc")),
    "dgc_ways": lambda: dgc_tables.ways(_record("dgc")),
    "dgc_labels": lambda: dgc_tables.labels(_record("dgc")),
    "dgc_stale": lambda: dgc_tables.stale(_record("dgc")),
    "dgc_link": lambda: dgc_tables.link(_record("dgc")),
    "dygnex": lambda: tables.beside_paper(_record("dygnex"), dygnex_tables.FIGURES, dygnex.PAPER),
    "dygnex_solving": lambda: dygnex_tables.solving(_record("dygnex")),
    "dygnex_balance": lambda: dygnex_tables.balance(_record("dygnex")),
    "dygnex_epochs": lambda: dygnex_tables.epochs(_record("dygnex"), _record("dygnex_16_cores")),
    "dygnex_efficiency": lambda: dygnex_tables.efficiency(_record("dygnex")),
    "dygnex_quality": lambda: dygnex_tables.quality(_record("dygnex")),
    "dygnex_validation": lambda: dygnex_tables.validation(_record("dygnex")),
    "dynahb": lambda: tables.beside_paper(_record("dynahb"), dynahb_tables.FIGURES, dynahb.PAPER),
    "dynahb_graphs": lambda: tables.graphs(_record("dynahb")),
    "dynahb_races": lambda: dynahb_tables.races(_record("dynahb")),
    "dynahb_sizes": lambda: dynahb_tables.sizes(_record("dynahb")),
    "dynahb_classes": lambda: dynahb_tables.classes(_record("dynahb")),
    "flare": lambda: tables.beside_paper(_record("flare"), flare_tables.FIGURES, flare.PAPER),
    "flare_graphs": lambda: tables.graphs(_record("flare")),
    "flare_errors": lambda: flare_tables.errors(_record("flare")),
    "flare_savings": lambda: flare_tables.savings(_record("flare")),
    "flare_peers": lambda: flare_tables.peers(_record("flare")),
    "distdy": lambda: tables.beside_paper(_record("distdy"), distdy_tables.FIGURES, distdy.PAPER),
    "distdy_real": lambda: distdy_tables.real(_record("distdy")),
    "distdy_synthetic": lambda: distdy_tables.synthetic(_record("distdy")),
    "distdy_changes": lambda: distdy_tables.changes(_record("distdy")),
    "distdy_settings": lambda: distdy_tables.settings(_record("distdy")),
    "distdy_partition": lambda: distdy_tables.partition(_record("distdy")),
    "distdy_rebuild": lambda: distdy_tables.rebuild(_record("distdy")),
    "distdy_epochs": lambda: distdy_tables.epochs(_record("distdy")),
    "online": lambda: distdy_tables.online(_record("distdy")),
    "online_kills": lambda: distdy_tables.kills(_record("distdy")),
    "causality": lambda: reliability_tables.causality(_record("causality")),
    "fuzz": lambda: reliability_tables.fuzz(_record("fuzz")),
    "kills": lambda: reliability_tables.kills(_record("kills")),
    "awkward": lambda: reliability_tables.awkward(_record("awkward")),
    "ingest": lambda: tables.ingest(_record("ingest")),
    "datasets": tables.datasets,
}


def rendered(text: str) -> str:
    """The document with its figures as the records have them."""
    return _MARKED.sub(lambda match: match[1] + "\n".join(TABLES[match[2]]()) + "\n" + match[3], text)


def main() -> None:
    """Renders all documents."""
    for name in DOCUMENTS:
        document = ROOT / name
        document.write_text(rendered(document.read_text()))
        print(f"rendered {name}")
    PICTURE.write_text(distdy_tables.picture(_record("distdy")))


if __name__ == "__main__":
    main()
