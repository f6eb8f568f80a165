"""How fast and how small is ingest beside a straightforward pandas version, and what does a large graph cost?

Both read the same CSV of events, cut it into months, number the nodes, count repeated edges and write every
snapshot to disk as a sparse matrix; their edge counts must agree. The large graph is generated, written to disk and
opened again. Every part runs in a process of its own.
"""

from __future__ import annotations

import importlib
import statistics
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.record import Record, child, memory, options, table, tell

_MODULE = "benchmarks.ingest"


def make_events(path: Path, count: int) -> None:
    """Events over three years between nodes of very different activity, in order of time."""
    import pyarrow as pa
    import pyarrow.csv

    rng = np.random.default_rng(0)
    nodes = max(count // 20, 1)
    ends = {name: (nodes * rng.random(count) ** 2).astype(np.int64) * 7 + 1 for name in ("src", "dst")}
    time = np.sort(rng.integers(1_500_000_000, 1_600_000_000, count))
    pyarrow.csv.write_csv(pa.table({**ends, "time": time}), path)


def with_strobe(path: Path, out: Path) -> tuple[int, int, int]:
    """(nodes, snapshots, edges) of the graph made by Strobe."""
    from strobe.graph.ingest import Calendar, ingest

    graph = ingest(path, src="src", dst="dst", time="time", clock=Calendar("month"), out=out)
    return graph.num_nodes, len(graph), graph.num_edges


def with_pandas(path: Path, out: Path) -> tuple[int, int, int]:
    """The same as most people would write it."""
    import pandas as pd
    import scipy.sparse as sp

    events = pd.read_csv(path)
    ids = pd.Index(pd.concat([events["src"], events["dst"]]).unique()).sort_values()
    events["src"] = ids.get_indexer(events["src"])
    events["dst"] = ids.get_indexer(events["dst"])
    events["month"] = pd.to_datetime(events["time"], unit="s").dt.to_period("M")
    counted = events.groupby(["month", "dst", "src"]).size().rename("count").reset_index()
    out.mkdir()
    months = pd.period_range(counted["month"].min(), counted["month"].max(), freq="M")
    for month, edges in counted.groupby("month"):
        weight = edges["count"].to_numpy(np.float32)
        matrix = sp.csr_array((weight, (edges["dst"], edges["src"])), shape=(len(ids), len(ids)))
        sp.save_npz(out / f"{month}.npz", matrix, compressed=False)
    return len(ids), len(months), len(counted)


def compare(record: Record, folder: Path, count: int, repeats: int) -> None:
    """Interleaved runs of both; medians, and ratios of medians."""
    make_events(folder / "events.csv", count)
    runs: dict[str, list[dict[str, Any]]] = {"strobe": [], "pandas": []}
    for repeat in range(repeats):
        for who, sampled in runs.items():
            sampled.append(child(_MODULE, who, folder / "events.csv", folder / f"{who}-{repeat}"))
    results = {who: {tuple(run["result"]) for run in sampled} for who, sampled in runs.items()}
    if results["strobe"] != results["pandas"]:
        raise SystemExit(f"the two do not agree: {results}")
    seconds = {who: statistics.median(run["seconds"] for run in sampled) for who, sampled in runs.items()}
    peak = {who: statistics.median(run["peak_bytes"] for run in sampled) for who, sampled in runs.items()}
    record.samples["events"] = count
    record.samples["runs"] = runs
    record.figures["ingest_rows_per_s"] = count / seconds["strobe"]
    record.figures["ingest_speedup"] = seconds["pandas"] / seconds["strobe"]
    record.figures["ingest_memory_ratio"] = peak["strobe"] / peak["pandas"]
    record.figures["ingest_peak_gib"] = peak["strobe"] / 2**30
    print(f"{count:,} events, CSV to graph on disk, median of {repeats}")
    rows = [
        (who, f"{seconds[who]:.2f}", f"{count / seconds[who]:,.0f}", f"{peak[who] / 2**20:,.0f}")
        for who in ("strobe", "pandas")
    ]
    table(("who", "seconds", "rows/s", "peak MiB"), rows)
    speedup, ratio = record.figures["ingest_speedup"], record.figures["ingest_memory_ratio"]
    print(f"strobe is {speedup:.2f} times as fast and takes {ratio:.2f} of the memory\n")


def large(record: Record, folder: Path, nodes: int) -> None:
    """A generated graph with ten snapshots of as many edges as there are nodes, written and opened."""
    written = child(_MODULE, "write", folder / "large", nodes)
    opened = child(_MODULE, "open", folder / "large")
    record.samples |= {"write": written, "open": opened}
    record.figures["big_write_gib"] = written["peak_bytes"] / 2**30
    record.figures["big_open_s"] = opened["seconds"]
    record.figures["big_open_mib"] = opened["grown_bytes"] / 2**20
    print(f"{written['nodes']:,} nodes, {written['edges']:,} edges in {written['snapshots']} snapshots")
    table(
        ("what", "seconds", "peak MiB"),
        [
            ("generate and write", f"{written['seconds']:.1f}", f"{written['peak_bytes'] / 2**20:,.0f}"),
            ("open", f"{opened['seconds']:.4f}", f"{opened['peak_bytes'] / 2**20:,.0f}"),
        ],
    )
    print(f"opening took {opened['grown_bytes'] / 2**20:.1f} MiB; the graph has {opened['bytes'] / 2**30:.2f} GiB\n")


def run_child(part: str, *arguments: str) -> None:
    """One part, in a process of its own."""
    import strobe

    if part in ("strobe", "pandas"):
        for package in ("strobe.graph.ingest", "duckdb") if part == "strobe" else ("pandas", "scipy.sparse"):
            importlib.import_module(package)
        begin = perf_counter()
        result = (with_strobe if part == "strobe" else with_pandas)(Path(arguments[0]), Path(arguments[1]))
        tell(seconds=perf_counter() - begin, result=result)
    elif part == "write":
        from strobe.graph.disk.directory import DiskSink
        from strobe.graph.synthetic import Social

        begin = perf_counter()
        count = int(arguments[1])
        with DiskSink(arguments[0]) as sink:
            graph = Social(nodes=count, edges=count, snapshots=10).write(sink)
        seconds = perf_counter() - begin
        tell(seconds=seconds, nodes=graph.num_nodes, edges=graph.num_edges, snapshots=len(graph))
    else:
        before, begin = memory("VmRSS"), perf_counter()
        graph = strobe.open(arguments[0])
        seconds = perf_counter() - begin
        tell(seconds=seconds, grown_bytes=memory("VmRSS") - before, bytes=graph.storage.nbytes)


def main() -> None:
    """Runs both questions."""
    said = options(__doc__)
    if said.child:
        run_child(*said.child)
        return
    record = Record("ingest", said.quick)
    with tempfile.TemporaryDirectory(prefix="strobe-benchmark-") as folder:
        compare(record, Path(folder), 10_000_000, 1 if said.quick else 3)
        large(record, Path(folder), 1_000_000 if said.quick else 20_000_000)
    record.write(said.json)


if __name__ == "__main__":
    main()
