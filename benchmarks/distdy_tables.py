"""Tables of benchmarks/distdy.py for the documents, from its record. What was not measured yet says so."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.distdy_partition import PAPER as TABLE_3
from benchmarks.distdy_storage import SAVED
from strobe.report.run import online_svg

FIGURES = {
    "storage_saved_uci": "bytes spared, UCI messages, one-hot rows (paper: the least of four sets)",
    "storage_saved_enron": "Enron, one-hot rows (the same)",
    "storage_saved_as733": "as733, one-hot rows",
    "storage_saved_icews18": "icews18, one-hot rows",
    "storage_saved_best": "the best of them",
    "storage_saved_uci_degrees": "UCI messages, degrees",
    "storage_saved_enron_degrees": "Enron, degrees",
    "storage_saved_as733_degrees": "as733, degrees",
    "storage_saved_icews18_degrees": "icews18, degrees",
    "storage_saved_synthetic_30": "generated, sparse, 30% changed",
    "storage_saved_synthetic_30_dense": "generated, dense, 30% changed",
    "storage_saved_changed_10%": "generated, sparse, 10% of the features changed",
    "storage_saved_changed_70%": "70% changed",
    "partition_s_500k": "placing and storing 20 snapshots of 500,000 nodes, s",
    "partition_vs_metis": "the same for 1 of METIS on the union",
    "partition_vs_hash": "for 1 of hash",
    "fetched_vs_metis": "edges that are cut, by how often they are sampled, for 1 of METIS on the union",
    "rebuild_vs_read": "rebuilding a snapshot for 1 of reading it from the page cache, in order",
    "rebuild_vs_read_random": "the same, at random",
    "rebuild_vs_read_cold": "for 1 of reading it from disk, in order",
    "rebuild_vs_read_cold_random": "the same, at random",
    "bytes_vs_metis": "bytes between ranks in an epoch, for 1 of METIS on the union",
    "bytes_vs_best": "for 1 of the best other placement",
    "epoch_speedup_vs_metis": "epochs as fast as METIS's, times, 1 Gb/s (paper: the most beside any)",
    "epoch_speedup_vs_best": "as fast as the best other placement's",
}
"""In words."""

NOT_YET = ["Not measured yet."]
_PAPER_SYNTHETIC = {"s": 0.471, "d": 0.366}
_PAPER_CHANGES = {"feature_change/0.1": 0.614, "feature_change/0.7": 0.174}


def real(record: dict[str, Any]) -> list[str]:
    """Real graphs by features and window."""
    rows = []
    for key, each in record["samples"].get("storage", {}).get("real", {}).items():
        name, kind, window = key.split("/")
        kilobytes = " | ".join(f"{each[what] / 1e3:,.0f}" for what in ("full", "delta"))
        rows.append(f"| {name} | {kind} | {window} | {kilobytes} | {_shares(each)} |")
    columns = "| graph | features | window | full, kB | differences, kB "
    return [f"{columns}{_SAVED_HEAD}", "|---" * 10 + "|", *rows] if rows else NOT_YET


def synthetic(record: dict[str, Any]) -> list[str]:
    """Generated graphs by size and density, 30% changed."""
    rows = [
        f"| {size} | {_shares(each)} | {_percent(_PAPER_SYNTHETIC.get(size[-1]))} |"
        for size, each in record["samples"].get("storage", {}).get("synthetic", {}).items()
    ]
    return [f"| size {_SAVED_HEAD} paper |", "|---" * 7 + "|", *rows] if rows else NOT_YET


def changes(record: dict[str, Any]) -> list[str]:
    """By the share that changes."""
    found = record["samples"].get("storage", {}).get("changes", {})
    shares = [key.partition("/")[2] for key in found if key.startswith("feature_change")]
    rows = [
        f"| {float(share):.0%} | {found[f'feature_change/{share}']['saved']:.1%} "
        f"| {_percent(_PAPER_CHANGES.get(f'feature_change/{share}'))} | {found[f'edge_change/{share}']['saved']:.1%} |"
        for share in shares
    ]
    head = "| changed | of the features: spared | paper | of the edges: spared |"
    return [head, "|---" * 4 + "|", *rows] if rows else NOT_YET


def settings(record: dict[str, Any]) -> list[str]:
    """By window and segments."""
    rows = [
        f"| {' | '.join(key.split('/'))} | {each['saved']:.1%} |"
        for key, each in record["samples"].get("storage", {}).get("settings", {}).items()
    ]
    return ["| window | segments | spared |", "|---" * 3 + "|", *rows] if rows else NOT_YET


def partition(record: dict[str, Any]) -> list[str]:
    """Seconds to place and to store beside Table 3, and what came of it."""
    rows = []
    for graph, found in record["samples"].get("partition", {}).items():
        for name, each in found["placements"].items():
            paper = TABLE_3[graph].get(name, 0.0)
            said = "out of memory" if paper is None else f"{paper:.1f}" if paper else "–"
            rows.append(
                f"| {graph} | {name} | {each['place_s']:.2f} | {each['store_s']:.1f} | {each['seconds']:.1f} | {said} "
                f"| {each['cut']:.1%} | {each['fetched']:.1%} | {each['moved']:.1%} "
                f"| {each['balance']:.2f} | {each['store_balance']:.2f} "
                f"| {each['store_bytes'] / 2**20:,.0f} | {each['anonymous_peak'] / 2**30:.2f} |"
            )
    head = (
        "| graph | placement | place, s | store, s | both, s | paper, s "
        "| arcs cut | as sampled | nodes that move | load max/mean "
        "| stores max/mean | fullest store, MiB | peak, GiB |"
    )
    return [head, "|---" * 13 + "|", *rows] if rows else NOT_YET


def rebuild(record: dict[str, Any]) -> list[str]:
    """Milliseconds of a snapshot: rebuilt, read warm, read cold."""
    found = record["samples"].get("rebuild", {})
    rows = []
    for key, each in found.get("seconds", {}).items():
        cells = [f"{1e3 * statistics.median(seconds):.1f}" if seconds else "–" for seconds in each.values()]
        rows.append(f"| {' | '.join(key.split('/'))} | {' | '.join(cells)} |")
    head = "| window | asked | rebuilt, ms | read from the page cache, ms | read from disk, ms |"
    if not rows:
        return NOT_YET
    return [head, "|---" * 5 + "|", *rows, "", f"A snapshot is {found['snapshot_bytes'] / 1e6:.1f} MB."]


def epochs(record: dict[str, Any]) -> list[str]:
    """Bytes and seconds of an epoch by placement."""
    rows = [
        f"| {ranks} | {name} | {each['bytes'] / 1e6:,.1f} | {each['bytes'] / found['metis']['bytes']:.2f} "
        f"| {each['seconds']:.2f} | {found['metis']['seconds'] / each['seconds']:.2f} | {each['exposed']:.2f} |"
        for ranks, found in record["samples"].get("epochs", {}).get("ranks", {}).items()
        for name, each in found.items()
    ]
    head = "| ranks | placement | MB an epoch | for 1 of metis | s an epoch | as fast as metis, times | waiting, s |"
    return [head, "|---" * 7 + "|", *rows] if rows else NOT_YET


_SAVED_HEAD = "| spared | median window | features alone | edges alone | beside snapshots alone |"


def _shares(each: dict[str, Any]) -> str:
    return " | ".join(f"{each[column]:.1%}" for column in SAVED)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def online(record: dict[str, Any]) -> list[str]:
    """Means over the months that were judged, of the model and of answers that need no learning."""
    found = record["samples"].get("online")
    if found is None:
        return NOT_YET
    names = list(found["metrics"])
    rows = {"GraphSAGE": found["metrics"]} | found["baselines"]
    months = f"mean over {len(found['times'])} months"
    return [
        f"| {months} | " + " | ".join(names) + " |",
        "|---" * (1 + len(names)) + "|",
        *(f"| {name} | " + " | ".join(f"{row[each]:.3f}" for each in names) + " |" for name, row in rows.items()),
    ]


def kills(record: dict[str, Any]) -> list[str]:
    """What came of runs that were killed."""
    figures = record["figures"]
    if "watch_kills" not in figures:
        return NOT_YET
    done = [each["snapshots_done"] for each in record["samples"]["kills"]["kills"]]
    return [
        "| question | answer |",
        "|---|---|",
        f"| kills | {figures['watch_kills']:.0f}, after {min(done)} to {max(done)} snapshots |",
        f"| runs that ended with the same bits, every snapshot once | {figures['watch_identical']:.0f} |",
        f"| processes that outlived their run | {figures['watch_orphans']:.0f} |",
    ]


def picture(record: dict[str, Any]) -> str:
    """The picture of docs/online.md."""
    found = record["samples"]["online"]
    named = {"GraphSAGE" if name == "sage" else name: values for name, values in found["ap"].items()}
    title = "rust_git: average precision of every month, before training on it"
    return online_svg(found["times"], named, title, "average precision (higher is better)")
