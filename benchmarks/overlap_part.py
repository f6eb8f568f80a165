"""How long do ranks wait for each other's rows, with and without other snapshots computing meanwhile?

Two hosts are network namespaces of this machine (tests/support/hosts.py), with one rank of one thread each and a link
of 1 Gb/s. MPNN-LSTM with two convolutions of 32 columns over windows of 8 snapshots, nodes placed by METIS. Exposed
seconds are those in which ranks wait for rows, states and gradients of each other, per epoch, the mean of both ranks.
Compared are ``halo``, which sends the rows of a window in one message and multiplies its own meanwhile; ``overlapped``
without overlap, which waits for every snapshot's rows as soon as they have left; and ``overlapped``. All three compute
the same numbers. Runs alternate.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.record import Record, options, table, tell
from strobe.exchange import Halo, Overlapped, StructureExchange
from tests.support.hosts import Hosts, NoHostsError, start_ranks, two_hosts

_MODULE = "benchmarks.overlap_part"
_LIMIT_S = 1800.0
EXCHANGES: dict[str, StructureExchange] = {
    "halo": Halo(),
    "waited": Overlapped(overlap=False),
    "overlapped": Overlapped(),
}


@dataclass(frozen=True)
class Size:
    """How much is trained, and how often."""

    nodes: int
    edges: int  # of a snapshot
    snapshots: int
    epochs: int  # of which the first is not counted
    repeats: int


QUICK = Size(nodes=10_000, edges=40_000, snapshots=12, epochs=3, repeats=1)
FULL = Size(nodes=80_000, edges=300_000, snapshots=20, epochs=4, repeats=3)


def make_graph(path: Path, size: Size) -> None:
    """A social network, on the disk that hosts share."""
    from strobe.graph.synthetic import Social

    Social(nodes=size.nodes, snapshots=size.snapshots, edges=size.edges).write().save(path)


def one_of_two(graph: str, epochs: int, repeats: int) -> None:
    """Child on a host: trains with each exchange in turn; the first rank tells what its record says."""
    import strobe
    from strobe.batching import Windows
    from strobe.exchange import Exchange, Relay
    from strobe.placement import Metis
    from strobe.plan import Plan

    port = int(os.environ["MASTER_PORT"])
    for k, name in enumerate([*EXCHANGES] * repeats):
        os.environ["MASTER_PORT"] = str(port + k)  # a place to meet of its own
        exchange = Exchange(structure=EXCHANGES[name], time=Relay())
        plan = Plan(placement=Metis(), batching=Windows(size=8), exchange=exchange)
        run = strobe.train(
            graph,
            "mpnn-lstm",
            model_options={"hidden": 32, "layers": 2},
            plan=plan,
            epochs=epochs,
            evaluate_every=epochs,
            patience=0,
            threads=1,
        )
        if os.environ["RANK"] == "0":
            tell(exchange=name, **measured(run.history))


def measured(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """One run: of each epoch but the first, which prepares, seconds, and what ranks waited, hid and sent."""
    found: dict[str, Any] = {
        "losses": [line["loss"] for line in lines],
        "seconds": [line["train_s"] for line in lines[1:]],
    }
    keys = {"exposed": "exposed_comm_s", "hidden": "overlapped_comm_s", "waiting": "straggler_wait_s"}
    for kind, key in keys.items():
        of_ranks = ([ledger["seconds"].get(key, 0.0) for ledger in line["ranks"]] for line in lines[1:-1])
        found[kind] = [statistics.mean(each) for each in of_ranks]
    for what in ("sent", "messages"):
        of_first = [line["ranks"][0][what] for line in lines[1:-1]]
        found[what] = [sum(n for key, n in each.items() if key.endswith("/halo")) for each in of_first]
    return found


def measure(quick: bool) -> dict[str, Any]:
    """Runs all exchanges on two hosts: figures, samples, and what is missing with the reason."""
    size = QUICK if quick else FULL
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_graph(folder / "graph", size)
        try:
            with two_hosts(folder / "disk", "1gbit") as hosts:
                runs = _run(hosts, folder / "graph", size, folder)
        except NoHostsError as error:
            return {"figures": {}, "samples": [], "missing": {"overlap_exposed_saved": f"no hosts: {error}"}}
    return {"figures": summarised(runs), "samples": runs, "missing": {}}


def summarised(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Medians by exchange, and what overlap saves of the exposed seconds."""
    figures = {}
    for name in EXCHANGES:
        mine = [run for run in runs if run["exchange"] == name]
        for kind in ("exposed", "hidden", "seconds"):
            figures[f"{name}_{kind}_s"] = statistics.median(second for run in mine for second in run[kind])
    losses = {name: next(run["losses"] for run in runs if run["exchange"] == name) for name in EXCHANGES}
    figures["overlap_exposed_saved"] = 1 - figures["overlapped_exposed_s"] / figures["waited_exposed_s"]
    figures["overlap_exposed_saved_of_halo"] = 1 - figures["overlapped_exposed_s"] / figures["halo_exposed_s"]
    figures["overlap_epoch_saved"] = 1 - figures["overlapped_seconds_s"] / figures["waited_seconds_s"]
    figures["overlap_same_bits"] = float(losses["overlapped"] == losses["waited"])
    return figures


def _run(hosts: Hosts, graph: Path, size: Size, logs: Path) -> list[dict[str, Any]]:
    job = start_ranks(hosts, ["-m", _MODULE, "--child", "rank", graph, size.epochs, size.repeats], logs)
    if any(job.wait(_LIMIT_S)):
        raise RuntimeError(job.output())
    return [json.loads(line) for line in job.logs[0].read_text().splitlines() if line.startswith("{")]


def main() -> None:
    """Measures and prints the table."""
    chosen = options(__doc__ or "")
    if chosen.child:
        _, graph, epochs, repeats = chosen.child
        return one_of_two(graph, int(epochs), int(repeats))
    record = Record("overlap_part", chosen.quick)
    found = measure(chosen.quick)
    record.figures |= found["figures"]
    record.missing |= found["missing"]
    record.samples["runs"] = found["samples"]
    kinds = ("exposed", "hidden", "seconds")
    rows = [[name, *(f"{record.figures[f'{name}_{kind}_s']:.3f}" for kind in kinds)] for name in EXCHANGES]
    table(["exchange", "exposed s", "hidden s", "epoch s"], rows if found["figures"] else [])
    record.write(chosen.json)
    return None


if __name__ == "__main__":
    main()
