"""Trapezoid batches: what do thinner pasts save, and what do they cost?

Windows of 8 snapshots slide by one; *full history* keeps all of every one of them, the trapezoid ever less of the older
ones. All systems of a model have the same seed, optimiser (Adam), learning rate, number of steps and evaluation, which
is exact: all snapshots, in order, with states carried through. One rank with one thread unless something else is said.

- ``history``: every model on every graph, with 16 columns. The error is that of the test snapshots, of the weights that
  were best in validation, the mean of some seeds. *Recent-only* trains on two snapshots with fresh states; beside it,
  as samples, K = 2 with states of the step before, as ours has them, and batches of 8 snapshots and hybrid batches (on
  shapes with the first model alone). Time to the same error: seconds until validation is within 2% of what both come
  to. Rows: cells that are computed in a step.
- ``passes``: seconds of an epoch of training, without evaluation, with 64 columns (benchmarks/flare_passes.py).
  ``time_vs_full`` and ``memory_vs_full`` are means over sets and models of ours for 1 of full history's.
- ``memory``: with 64 columns, what a process on one rank takes beyond what it held with libraries and graph, at its
  peak within the first 11 steps, without what placing took; and the bytes of tensors.
- ``shrinking``: seconds per pass of steps that renumber, by those of ours, less 1; one rank (benchmarks/
  flare_renumbered.py).
- ``overlap``: what other snapshots computing meanwhile saves of the seconds in which ranks wait, on a link of 1 Gb/s
  (benchmarks/overlap_part.py).
- ``shares``: of a run of MPNN-LSTM with as many epochs as it took to its best validation, but at least 30:
  placing nodes in chunks, and drawing their order.
- ``peers``: MPNN-LSTM beside the public code of the paper on the same graph, one thread: the worse of 16 and 64
  columns.
- ``ranks``: what training T-GCN takes on each of 1, 2 and 4 ranks, the shape of soc-youtube at 5%.
- ``youtube``: the same shape and model at 100%, two ranks, two passes over 16 snapshots before the last ones: the peak
  of both ranks together, the seconds of a step, and how far the loss falls from the first pass to the second.

``--only PART`` measures one part and leaves the others in the record as they are. Figures of the paper are of other
machines and graphs.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from subprocess import CalledProcessError
from time import perf_counter
from typing import Any

from benchmarks import flare_scale
from benchmarks.flare_history import LR, MODELS, RANKS, history, opened
from benchmarks.flare_memory import side_by_side, weighed
from benchmarks.flare_passes import passes, timed
from benchmarks.flare_renumbered import compare
from benchmarks.flare_runs import FULL, OURS, plan_of
from benchmarks.flare_sets import CASES, QUICK, SHAPES, Case, named
from benchmarks.parts import parts_parser, run_parts
from benchmarks.record import Record, child, table, tell
from strobe.batching.trapezoid import sample_retention_order
from strobe.comm import RankError
from strobe.graph import DynamicGraph, open_graph
from strobe.view.data.permuted import NodeOrder

_MODULE = "benchmarks.flare"
EPOCHS = 30
"""Of the run whose shares are told, at least."""

PAPER: dict[str, float] = {
    "memory_vs_full": 0.309,
    "time_vs_full": 0.316,
    "mse_vs_full_worst": 1.871,
    "mse_vs_recent_only_best": 0.079,
    "shrink_gain": 0.153,
    "overlap_gain": 0.134,
    "chunking_share": 0.0102,
    "shuffle_share": 0.0042,
}
"""Tables 6 to 9, 11 and 12: means where ours are, worst and best where ours are."""


def chosen() -> argparse.Namespace:
    """What the command line says."""
    parser = parts_parser(__doc__, PARTS)
    sets = ",".join(case.name for case in CASES)
    parser.add_argument("--sets", default=sets, help=f"of histories and passes; the others stay: {sets}")
    parser.add_argument("--at-a-time", type=int, default=1, help="runs of histories and passes, each with one thread")
    parser.add_argument("--youtube", help="the shape of soc-youtube at 100%% on disk; without it, it is made")
    return parser.parse_args()


def main() -> None:
    """Measures and prints everything, or a part of it."""
    said = chosen()
    if said.child:
        return as_child(*said.child)
    record = Record("flare", said.quick)
    run_parts(record, {name: partial(measure, record, name, said) for name in PARTS}, said, PAPER)
    return None


def measure(record: Record, part: str, said: argparse.Namespace) -> None:
    """A part; what it says in the record already is gone, whether it can be measured now or not."""
    for figure in FIGURES[part]:
        record.figures.pop(figure, None)
        record.missing.pop(figure, None)
    try:
        PARTS[part](record, said)
    except (CalledProcessError, RankError) as error:
        record.missing |= {name: str(error).splitlines()[0] for name in FIGURES[part] if name not in record.figures}


def as_child(part: str, *given: str) -> None:
    """What a process of its own measures."""
    if part == "memory":
        path, case, model, system = given
        tell(**weighed(path, named(case).task, model, plan_of(system), lr=LR))
    elif part == "shrinking":
        path, case, model, rounds, epochs = given
        tell(**compare(open_graph(path), named(case).task, model, plan_of(OURS), int(rounds), int(epochs)))
    elif part == "passes":
        path, case, model, system = given
        tell(seconds=timed(path, named(case).task, model, system))
    elif part == "peers":
        tell(**flare_scale.beside_peer(int(given[0]), int(given[1])))


def memories(record: Record, quick: bool) -> None:
    """What training takes in processes of their own, ours and full history's."""
    found: dict[str, dict[str, Any]] = {}
    for case in (QUICK,) if quick else CASES:
        with opened(case, record) as given:
            if given is None:
                continue
            keys = [(model, system) for model in MODELS[: 1 if quick else None] for system in (OURS, FULL)]
            calls = [("memory", given.path, case.name, *key) for key in keys]
            for (model, system), measured in zip(keys, side_by_side(_MODULE, calls), strict=True):
                found.setdefault(f"{case.name}/{model}", {})[system] = measured
    if not found:
        record.missing["memory_vs_full"] = "no graph was found"
        return
    ratios = {
        kind: {key: each[OURS][kind] / each[FULL][kind] for key, each in found.items()}
        for kind in ("added_bytes", "tensor_bytes")
    }
    record.samples["memory"] = {"measured": found, **ratios}
    record.figures["memory_vs_full"] = statistics.mean(ratios["added_bytes"].values())
    record.figures["tensors_vs_full"] = statistics.mean(ratios["tensor_bytes"].values())
    rows = [
        [key, *(f"{each[system][kind] / 2**20:,.0f}" for kind in ratios for system in (OURS, FULL))]
        for key, each in found.items()
    ]
    table(["MiB", "ours", "full history", "tensors, ours", "tensors, full"], rows)


def shrinking(record: Record, quick: bool) -> None:
    """Steps that renumber beside ours."""
    found = {}
    for case in (QUICK,) if quick else (named("sx_mathoverflow"), named("soc-flickr")):
        with opened(case, record) as given:
            if given is None:
                continue
            for model in MODELS[1:2] if quick else MODELS:
                how = (1, 2) if quick else (2, 3)
                found[f"{case.name}/{model}"] = child(_MODULE, "shrinking", given.path, case.name, model, *how)
    if not found:
        record.missing["shrink_gain"] = "no graph was found"
        return
    record.samples["shrinking"] = found
    record.figures["shrink_gain"] = statistics.mean(each["gain"] for each in found.values())
    table(["renumbering takes", "more"], [[key, f"{each['gain']:.1%}"] for key, each in found.items()])


def overlap(record: Record, quick: bool) -> None:
    """Exposed communication with and without overlap."""
    try:
        from benchmarks import overlap_part
    except ImportError as error:
        record.missing["overlap_gain"] = str(error)
        return
    found = overlap_part.measure(quick)
    record.samples["overlap"] = {"figures": found["figures"], "runs": found["samples"]}
    if "overlap_exposed_saved" in found["figures"]:
        record.figures["overlap_gain"] = found["figures"]["overlap_exposed_saved"]
    for reason in found["missing"].values():
        record.missing["overlap_gain"] = reason


def shares(record: Record, quick: bool) -> None:
    """What chunks and their order cost of a run; the passes are those of ``history``."""
    found = {}
    for case in (QUICK,) if quick else SHAPES:
        model = MODELS[0] if quick else "mpnn-lstm"
        ours = record.samples.get("history", {}).get(f"{case.name}/{model}", {}).get(OURS, {})
        if "pass_s" not in ours:
            continue
        graph = case.load()
        placing_s, drawing_s = chunked(graph)
        epochs = max(ours["best_epoch"], EPOCHS)
        run_s = placing_s + epochs * statistics.median(ours["pass_s"][1:] or ours["pass_s"])
        found[f"{case.name}/{model}"] = {
            "epochs": epochs,
            "run_s": run_s,
            "placing_s": placing_s,
            "drawing_s": drawing_s,
            "chunking": placing_s / run_s,
            "shuffling": epochs * drawing_s / run_s,
        }
    if not found:
        record.missing["chunking_share"] = record.missing["shuffle_share"] = "part history comes first"
        return
    record.samples["shares"] = found
    record.figures["chunking_share"] = max(each["chunking"] for each in found.values())
    record.figures["shuffle_share"] = max(each["shuffling"] for each in found.values())
    kinds = ("chunking", "shuffling")
    table(["share of a run", *kinds], [[key, *(f"{each[k]:.2%}" for k in kinds)] for key, each in found.items()])


def chunked(graph: DynamicGraph) -> tuple[float, float]:
    """Seconds of placing nodes in chunks, and of drawing an order of them on a rank."""
    plan = plan_of(OURS)
    began = perf_counter()
    placed = plan.placement.place(graph, [range(len(graph))], RANKS)
    placing_s = perf_counter() - began
    assert placed.node_chunk is not None
    seconds = []
    for epoch in range(3):
        began = perf_counter()
        order = NodeOrder(
            0, placed.node_owner, sample_retention_order(placed.chunk_owner, (0, epoch))[placed.node_chunk]
        )
        _ = order.nodes, order.slot
        seconds.append(perf_counter() - began)
    return placing_s, statistics.median(seconds)


def peers(record: Record, quick: bool) -> None:
    """MPNN-LSTM beside the public code of the paper."""
    if quick:
        record.missing["peer_memory_ratio"] = record.missing["peer_cpu_ratio"] = (
            "not in a quick run: its graph is larger"
        )
        return
    rows, found = [], {}
    for hidden, theirs in flare_scale.PEER.items():
        ours = child(_MODULE, "peers", hidden, 4)
        mine = {"cpu_s": statistics.median(ours["cpu_s"]), "peak_gb": ours["peak_bytes"] / 1e9}
        found[hidden] = {"ours": mine, "peer": theirs, "samples": ours}
        rows.append([hidden, *(f"{each[kind]:.2f}" for kind in mine for each in (mine, theirs))])
    record.samples["peers"] = found
    for figure, kind in (("peer_memory_ratio", "peak_gb"), ("peer_cpu_ratio", "cpu_s")):
        record.figures[figure] = max(each["ours"][kind] / each["peer"][kind] for each in found.values())
    table(["hidden", "CPU s", "peer's", "GB", "peer's"], rows)


def ranks(record: Record, quick: bool) -> None:
    """What each of several ranks takes."""
    if quick:
        record.missing["memory_per_rank_4"] = "not in a quick run"
        return
    found = flare_scale.in_a_folder("soc-youtube", 0.05, flare_scale.by_ranks)
    record.samples["ranks"] = found
    for number in (2, 4):
        record.figures[f"memory_per_rank_{number}"] = found[number]["added_bytes"] / found[1]["added_bytes"]
        record.figures[f"tensors_per_rank_{number}"] = found[number]["tensor_bytes"] / found[1]["tensor_bytes"]
    kinds = ("added_bytes", "tensor_bytes")
    table(["ranks", "MiB", "tensors"], [[n, *(f"{each[k] / 2**20:,.0f}" for k in kinds)] for n, each in found.items()])


def youtube(record: Record, quick: bool, path: str | None = None) -> None:
    """The largest shape, whole."""
    if quick:
        record.missing["youtube_peak_gib"] = record.missing["youtube_step_s"] = "not in a quick run: it takes minutes"
        return
    found = flare_scale.big(path) if path else flare_scale.in_a_folder("soc-youtube", 1.0, flare_scale.big)
    record.samples["youtube"] = found
    record.figures["youtube_peak_gib"] = sum(found["peak_bytes"]) / 2**30
    record.figures["youtube_step_s"] = found["full_step_s"]
    first, *_, last = found["pass_losses"]
    record.figures["youtube_loss_fall"] = 1 - last / first
    peaks = ", ".join(f"{peak / 2**30:.2f}" for peak in found["peak_bytes"])
    print(f"losses of passes {first:.3f}, {last:.3f}; {found['full_step_s']:.1f} s a step; GiB of ranks: {peaks}")


def sets(said: argparse.Namespace) -> list[Case]:
    """The graphs of histories and passes."""
    return [QUICK] if said.quick else [named(name) for name in said.sets.split(",")]


PARTS: dict[str, Callable[[Record, argparse.Namespace], None]] = {
    "history": lambda record, said: history(record, sets(said), said.at_a_time),
    "passes": lambda record, said: passes(record, sets(said), said.at_a_time),
    "memory": lambda record, said: memories(record, said.quick),
    "shrinking": lambda record, said: shrinking(record, said.quick),
    "overlap": lambda record, said: overlap(record, said.quick),
    "shares": lambda record, said: shares(record, said.quick),
    "peers": lambda record, said: peers(record, said.quick),
    "ranks": lambda record, said: ranks(record, said.quick),
    "youtube": lambda record, said: youtube(record, said.quick, said.youtube),
}

FIGURES: dict[str, tuple[str, ...]] = {
    "history": (
        "rows_vs_full",
        "mse_vs_full_worst",
        "mse_vs_full_mean",
        "mse_vs_recent_only_best",
        "mse_vs_inherited_best",
        "sooner_than_full",
    ),
    "passes": ("time_vs_full", "time_vs_full_worst"),
    "memory": ("memory_vs_full", "tensors_vs_full"),
    "shrinking": ("shrink_gain",),
    "overlap": ("overlap_gain",),
    "shares": ("chunking_share", "shuffle_share"),
    "peers": ("peer_memory_ratio", "peer_cpu_ratio"),
    "ranks": ("memory_per_rank_2", "memory_per_rank_4", "tensors_per_rank_2", "tensors_per_rank_4"),
    "youtube": ("youtube_peak_gib", "youtube_step_s", "youtube_loss_fall"),
}
"""What each part measures."""

if __name__ == "__main__":
    main()
