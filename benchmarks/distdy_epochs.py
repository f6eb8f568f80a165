"""What do placements cost where neighbours are sampled and features fetched over slow links?

Hosts are network namespaces of this machine (tests/support/hosts.py), with one rank of one thread each and a link of
1 Gb/s to a switch. GraphSAGE with two convolutions of 128 columns on sampled neighbours, windows of 4 snapshots, of a
graph like Ex500K but smaller: 10% hot nodes, 128 binary features, 8 snapshots, 30% of features and edges change. The
plan is the preset's, with 164 examples a step: with more of so small a graph every rank would read nearly all of it,
wherever it is. Only the placement is another. Runs alternate. Bytes are those that ranks' ledgers count in an epoch,
all ranks together; seconds are those of training. Both are medians of epochs, without the first.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.distdy_partition import PLACEMENTS
from benchmarks.record import Record, table, tell
from strobe.exchange import Fetch
from strobe.graph.synthetic import Changing
from strobe.presets import PRESETS, preset
from tests.support.hosts import Hosts, NoHostsError, start_ranks, switched_hosts

MODULE = "benchmarks.distdy"
RATE, RANKS = "1gbit", (2,)
MODEL, MODEL_OPTIONS = "sage", {"hidden": 128, "layers": 2, "span": 4}
LR, STEP = 0.001, 164
USUAL = "online"
"""The preset's own."""
GATHERED = "online, rows gathered"
"""With a target's older cells computed where they are, and their rows brought together."""
COMPARED = (USUAL, "metis", "metis-per-snapshot", "greedy", "hash", GATHERED)
_LIMIT_S = 3600.0


class RanksFailedError(Exception):
    """What ranks said before they ended."""


@dataclass(frozen=True)
class Size:
    """How much is trained, and how often."""

    nodes: int
    snapshots: int
    epochs: int  # of which the first is not counted
    rounds: int


FULL = Size(nodes=20_000, snapshots=8, epochs=2, rounds=1)
QUICK = Size(nodes=200, snapshots=8, epochs=2, rounds=1)


def epochs(record: Record, quick: bool, scale: float, name: str) -> None:
    """All placements on two hosts."""
    if name not in PRESETS:
        record.missing["epoch_speedup_vs_metis"] = record.missing["bytes_vs_metis"] = f"there is no preset {name}"
        return
    size = QUICK if quick else replace(FULL, nodes=max(200, round(scale * FULL.nodes)))
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        graph = Path(folder) / "graph"
        Changing(nodes=size.nodes, edges=5 * size.nodes, snapshots=size.snapshots, hot=0.1).write().save(graph)
        for ranks in RANKS[: 1 if quick else None]:
            try:
                with switched_hosts(Path(folder) / "disk", ranks, RATE) as hosts:
                    runs = _run(hosts, graph, name, size, Path(folder))
            except NoHostsError as error:
                record.missing["epoch_speedup_vs_metis"] = record.missing["bytes_vs_metis"] = f"no hosts: {error}"
                return
            found[str(ranks)] = {each: _summary([run for run in runs if run["placement"] == each]) for each in COMPARED}
    record.samples["epochs"] = {"size": vars(size), "preset": name, "link": RATE, "ranks": found}
    _show(found)
    _figures(record, found)


def one_of_some(graph: str, name: str, epochs: str, rounds: str) -> None:
    """Child on a host: trains with each placement in turn; the first rank tells what its record says."""
    import strobe

    port = int(os.environ["MASTER_PORT"])
    for number, placement in enumerate(COMPARED * int(rounds)):
        os.environ["MASTER_PORT"] = str(port + number)  # a place to meet of its own
        plan = preset(name, size=STEP)
        if placement == GATHERED:
            plan = replace(plan, exchange=replace(plan.exchange, structure=Fetch()))
        elif placement != USUAL:
            plan = replace(plan, placement=PLACEMENTS[placement]())
        run = strobe.train(
            graph,
            MODEL,
            "regression",
            model_options=MODEL_OPTIONS,
            plan=plan,
            epochs=int(epochs),
            evaluate_every=int(epochs) + 1,
            patience=0,
            threads=1,
            lr=LR,
        )
        if os.environ["RANK"] == "0":
            tell(placement=placement, **measured(run.history))


def measured(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """One run: of each epoch but the first, which prepares, seconds, and bytes by kind, all ranks together."""
    sent = []
    for line in lines[1:]:
        kinds: dict[str, int] = {}
        for ledger in line["ranks"]:
            for kind, number in ledger["sent"].items():
                kinds[kind] = kinds.get(kind, 0) + number
        sent.append(kinds)
    seconds = [[ledger["seconds"].get("exposed_comm_s", 0.0) for ledger in line["ranks"]] for line in lines[1:]]
    return {
        "losses": [line["loss"] for line in lines],
        "seconds": [line["train_s"] for line in lines[1:]],
        "exposed": [statistics.mean(each) for each in seconds],
        "sent": sent,
    }


def _run(hosts: Hosts, graph: Path, name: str, size: Size, logs: Path) -> list[dict[str, Any]]:
    command = ["-m", MODULE, "--child", "epochs", graph, name, size.epochs, size.rounds]
    job = start_ranks(hosts, command, logs)
    if any(job.wait(_LIMIT_S)):
        raise RanksFailedError(job.output())
    return [json.loads(line) for line in job.logs[0].read_text().splitlines() if line.startswith("{")]


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over epochs of all rounds."""
    epochs = [sent for run in runs for sent in run["sent"]]
    return {
        "bytes": statistics.median(sum(sent.values()) for sent in epochs),
        "bytes_by_kind": {kind: statistics.median(sent.get(kind, 0) for sent in epochs) for kind in epochs[0]},
        "seconds": statistics.median(each for run in runs for each in run["seconds"]),
        "exposed": statistics.median(each for run in runs for each in run["exposed"]),
        "runs": runs,
    }


def _show(found: dict[str, Any]) -> None:
    rows = [
        [
            ranks,
            name,
            f"{each['bytes'] / 1e6:.1f}",
            f"{each['bytes'] / by_name['metis']['bytes']:.2f}",
            f"{each['seconds']:.2f}",
            f"{by_name['metis']['seconds'] / each['seconds']:.2f}",
            f"{each['exposed']:.2f}",
        ]
        for ranks, by_name in found.items()
        for name, each in by_name.items()
    ]
    table(["ranks", "placement", "MB an epoch", "for 1 of metis", "s", "as fast as metis", "waiting s"], rows)


def _figures(record: Record, found: dict[str, Any]) -> None:
    """With most ranks; and beside the best of all others."""
    most = found[max(found, key=int)]
    online, others = most["online"], {name: each for name, each in most.items() if name != "online"}
    record.figures["bytes_vs_metis"] = online["bytes"] / most["metis"]["bytes"]
    record.figures["bytes_vs_best"] = online["bytes"] / min(each["bytes"] for each in others.values())
    record.figures["epoch_speedup_vs_metis"] = most["metis"]["seconds"] / online["seconds"]
    record.figures["epoch_speedup_vs_best"] = min(each["seconds"] for each in others.values()) / online["seconds"]
