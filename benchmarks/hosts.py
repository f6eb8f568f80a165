"""What do two machines with a slow link between them cost, plan by plan? And does the ledger tell what the wire saw?

Two hosts, which are network namespaces of this machine, with one rank of one thread each and a link that the kernel
limits to 1 Gb/s or 100 Mb/s: tests/support/hosts.py. An epoch's seconds are those of training; the exposed share is
the part of the ranks' time in which they wait for rows, states and gradients of each other. Bytes are those that leave
the first host from the end of the first epoch to the end of the last: by its rank's ledger, and by the kernel's counter
of the network interface, which counts frames with their headers.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.record import Record, child, options, table, tell
from strobe.engine.progress import Progress
from tests.support.hosts import LINK, Hosts, NoHostsError, start_ranks, two_hosts

_MODULE = "benchmarks.hosts"
PLANS = ("relay", "metis", "hash")
RATES = {"1gb": "1gbit", "100mb": "100mbit"}
SNAPSHOTS = 24
_LIMIT_S = 1200.0


def make_graph(path: Path, nodes: int) -> None:
    """A social network, on the disk that hosts share."""
    from strobe.graph.synthetic import Social

    Social(nodes=nodes, snapshots=SNAPSHOTS, edges=3 * nodes).write().save(path)


def train(graph: str, plan: str, epochs: int, watch: Progress | None = None) -> list[dict[str, Any]]:
    """Trains once, as what the environment says this process is; its epochs."""
    import strobe

    # Two convolutions: what the first one reads has no weights before it and travels only once per run.
    chosen: dict[str, Any] = {"model_options": {"layers": 2}, "optimizer": "sgd", "patience": 0, "threads": 1}
    run = strobe.train(graph, "tgcn", plan=plan, epochs=epochs, evaluate_every=epochs, progress=watch, **chosen)
    return run.history


def one_rank(graph: str, epochs: int) -> None:
    """Child: trains alone and tells seconds per epoch and losses."""
    lines = train(graph, "relay", epochs)
    tell(seconds=[line["train_s"] for line in lines[1:]], losses=[line["loss"] for line in lines])


def one_of_two(graph: str, epochs: int, repeats: int, plans: tuple[str, ...]) -> None:
    """Child on a host: trains with each plan; the first tells of each run what its record and the kernel say."""
    port = int(os.environ["MASTER_PORT"])
    for k, plan in enumerate(plans * repeats):
        os.environ["MASTER_PORT"] = str(port + k)  # a place to meet of its own
        meter = Meter()
        lines = train(graph, plan, epochs, meter)
        if os.environ["RANK"] == "0":
            tell(plan=plan, **measured(lines, meter.sent_bytes))


class Meter(Progress):
    """Reads at the end of every epoch what has left through this host's end of the link."""

    def __init__(self) -> None:
        self.sent_bytes: list[int] = []

    def epoch(self, line: dict[str, Any]) -> None:
        told = Path("/proc/net/dev").read_text().partition(f"{LINK}:")[2]
        self.sent_bytes.append(int(told.split()[8]))


def measured(lines: list[dict[str, Any]], kernel: list[int]) -> dict[str, Any]:
    """One run: seconds per epoch, exposed share, bytes per epoch by ledger and by kernel."""
    ledgers = [ledger for line in lines for ledger in line["ranks"]]
    exposed = sum(ledger["seconds"].get("exposed_comm_s", 0.0) for ledger in ledgers)
    return {
        "seconds": [line["train_s"] for line in lines[1:]],
        "losses": [line["loss"] for line in lines],
        "exposed_share": exposed / sum(ledger["total_s"] for ledger in ledgers),
        "ledger_bytes": [sum(line["ranks"][0]["sent"].values()) for line in lines[1:]],
        "kernel_bytes": [after - before for before, after in pairwise(kernel)],
    }


def measure(
    hosts: Hosts, graph: Path, epochs: int, repeats: int, logs: Path, plans: tuple[str, ...] = PLANS
) -> list[dict[str, Any]]:
    """Some plans on one link."""
    job = start_ranks(hosts, ["-m", _MODULE, "--child", "rank", graph, epochs, repeats, *plans], logs)
    if any(job.wait(_LIMIT_S)):
        raise RuntimeError(job.output())
    return [json.loads(line) for line in job.logs[0].read_text().splitlines() if line.startswith("{")]


def summarise(record: Record, rate: str, runs: list[dict[str, Any]], alone: dict[str, Any]) -> list[list[str]]:
    """Figures of one link, and rows of the table."""
    rows = []
    for plan in PLANS:
        mine = [run for run in runs if run["plan"] == plan]
        seconds = statistics.median(second for run in mine for second in run["seconds"])
        exposed = statistics.median(run["exposed_share"] for run in mine)
        ledger, kernel = (sum(sum(run[name]) for run in mine) for name in ("ledger_bytes", "kernel_bytes"))
        apart = max(abs(a - b) / abs(b) for run in mine for a, b in zip(run["losses"], alone["losses"], strict=True))
        megabytes = statistics.median(sent for run in mine for sent in run["ledger_bytes"]) / 1e6
        record.figures[f"{plan}_seconds_{rate}"] = seconds
        record.figures[f"{plan}_exposed_{rate}"] = exposed
        record.figures[f"{plan}_megabytes"] = megabytes
        record.figures["loss_difference"] = max(apart, record.figures.get("loss_difference", 0.0))
        rows.append([rate, plan, f"{seconds:.3f}", f"{exposed:.0%}", f"{megabytes:.2f}", f"{ledger / kernel:.3f}"])
    return rows


def main() -> None:
    """Runs all plans on both links and prints the table."""
    chosen = options(__doc__ or "")
    if chosen.child:
        kind, graph, epochs, *others = chosen.child
        if kind == "alone":
            return one_rank(graph, int(epochs))
        return one_of_two(graph, int(epochs), int(others[0]), tuple(others[1:]))
    nodes, epochs, repeats = (1_000, 8, 1) if chosen.quick else (10_000, 10, 2)
    record = Record("hosts", chosen.quick)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_graph(folder / "graph", nodes)
        alone = child(_MODULE, "alone", folder / "graph", epochs)
        record.figures["one_rank_seconds"] = statistics.median(alone["seconds"])
        record.samples["alone"] = alone
        for rate, limit in RATES.items():
            try:
                with two_hosts(folder / "disk", limit) as hosts:
                    runs = measure(hosts, folder / "graph", epochs, repeats, folder)
            except NoHostsError as error:
                record.missing[rate] = f"no hosts: {error}"
                continue
            rows += summarise(record, rate, runs, alone)
            record.samples[rate] = runs
    _compare_bytes(record)
    table(["link", "plan", "s per epoch", "exposed", "MB a rank sends", "ledger / kernel bytes"], rows)
    record.write(chosen.json)
    return None


def _compare_bytes(record: Record) -> None:
    """The ledger against the kernel, on the plan that sends most: its traffic is training, little else."""
    runs = [run for rate in RATES for run in record.samples.get(rate, []) if run["plan"] == "hash"]
    if runs:
        ledger, kernel = (sum(sum(run[name]) for run in runs) for name in ("ledger_bytes", "kernel_bytes"))
        record.figures["ledger_vs_kernel_bytes"] = ledger / kernel


if __name__ == "__main__":
    main()
