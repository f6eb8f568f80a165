"""Does Strobe win the field's tables? Published protocols by name, each method with three seeds.

``strobe benchmark NAME`` runs one of them; here all are run, one process per protocol, data set, method and seed
(``--workers``), and compared with the published rows. Results are kept as they come: a run that was stopped goes on.
Data sets are looked for below $STROBE_DATA.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from benchmarks.job_pool import Job, run_jobs
from benchmarks.record import Record, commit, cpu, option_parser, table
from strobe.protocols import ProtocolRequest, ProtocolResult, find_protocol

SEEDS = (0, 1, 2)
BITCOINS_AND_UCI = ("bitcoin_otc", "bitcoin_alpha", "collegemsg")
METHODS: dict[str, dict[str, tuple[str, ...]]] = {
    "roland-fixed": dict.fromkeys(BITCOINS_AND_UCI, ("roland+pair-features", "roland+pair-features+live")),
    "roland-live": dict.fromkeys((*BITCOINS_AND_UCI, "as733"), ("roland+pair-features",)),
    "evolvegcn": {
        **dict.fromkeys(BITCOINS_AND_UCI, ("evolvegcn-o", "evolvegcn-o+pair-features")),
        "as733": ("evolvegcn-o",),
    },
    "dysat": {"enron_dysat": ("dysat",), "uci_dysat": ("dysat",)},
    "tgcn-los-loop": {"metr_la_week": ("tgcn",)},
    "tgbl-wiki": {"wikipedia_jodie": ("pair-network",)},
    "utg": {"collegemsg": ("evolvegcn-o", "evolvegcn-o+pair-features")},
    **{
        f"dyglib-{strategy}": dict.fromkeys(("canvote", "uslegis"), ("gcn", "gcn+pair-features"))
        for strategy in ("random", "historical", "inductive")
    },
}
"""Methods by protocol and data set."""

BASELINES = "baselines"
QUICK = {"dysat": {"enron_dysat": ("dysat",)}}

FIGURES = {
    "edgebank_wiki_test": ("tgbl-wiki", "wikipedia_jodie", "edgebank"),
    "edgebank_wiki_window_test": ("tgbl-wiki", "wikipedia_jodie", "edgebank-window"),
    "wiki_mrr": ("tgbl-wiki", "wikipedia_jodie", "pair-network"),
    "dysat_enron_auc": ("dysat", "enron_dysat", "dysat"),
    "dysat_uci_auc": ("dysat", "uci_dysat", "dysat"),
    "los_loop_rmse": ("tgcn-los-loop", "metr_la_week", "tgcn"),
    "live_otc": ("roland-live", "bitcoin_otc", "roland+pair-features"),
    "live_alpha": ("roland-live", "bitcoin_alpha", "roland+pair-features"),
    "live_uci": ("roland-live", "collegemsg", "roland+pair-features"),
    "live_as733": ("roland-live", "as733", "roland+pair-features"),
    "utg_uci": ("utg", "collegemsg", "evolvegcn-o+pair-features"),
    "utg_edgebank_window_test": ("utg", "collegemsg", "edgebank-window"),
    "dyglib_canvote_ap": ("dyglib-random", "canvote", "gcn+pair-features"),
    "dyglib_uslegis_ap": ("dyglib-random", "uslegis", "gcn+pair-features"),
}
"""Figures that are the test value of one method."""

BEST = {
    "roland_fixed_otc": ("roland-fixed", "bitcoin_otc"),
    "roland_fixed_alpha": ("roland-fixed", "bitcoin_alpha"),
    "roland_fixed_uci": ("roland-fixed", "collegemsg"),
}
"""Figures that are the test value of the method with the best validation value."""

FROM_OTHERS = {"ranking_vs_product": "ranking", "sets_above_start": "quality", "calibration_error": "quality"}
"""Figures of other records."""


def run_job(job: Job) -> list[dict[str, Any]]:
    """Run one method with one seed, or all baselines of a data set."""
    protocol, epochs = find_protocol(job["protocol"]), job.get("epochs")
    request = ProtocolRequest(data=job["data"], seeds=1, first_seed=job.get("seed", 0), epochs=epochs)
    if job["method"] == BASELINES:
        return [each.to_json() for each in protocol.run_baselines(request)]
    return [protocol.run(ProtocolRequest(**vars(request) | {"model": job["method"]})).to_json()]


def jobs(*, quick: bool, match: Sequence[str] = ("*",)) -> list[Job]:
    """All jobs whose name matches a pattern: seed by seed, so that a run that was stopped has some of every method."""
    chosen = QUICK if quick else METHODS
    pairs = [(protocol, data, methods) for protocol, sets in chosen.items() for data, methods in sets.items()]
    found: list[Job] = [{"protocol": protocol, "data": data, "method": BASELINES} for protocol, data, _ in pairs]
    for seed in SEEDS[:1] if quick else SEEDS:
        for protocol, data, methods in pairs:
            found += [{"protocol": protocol, "data": data, "method": each, "seed": seed} for each in methods]
    found = [job for job in found if any(fnmatch(" ".join(map(str, job.values())), pattern) for pattern in match)]
    return [job | {"epochs": 2} for job in found] if quick else found


def merge(results: list[tuple[Job, Any]]) -> list[dict[str, Any]]:
    """One result per protocol, data set and method, with the values of all seeds."""
    merged: dict[tuple[str, str, str], list[ProtocolResult]] = {}
    for _, found in results:
        for each in map(ProtocolResult.from_json, found):
            merged.setdefault((each.protocol, each.data, each.method), []).append(each)
    return [ProtocolResult.join(each).to_json() for each in merged.values()]


def fill_figures(record: Record, found: list[dict[str, Any]]) -> None:
    """Figures by name; those that could not be measured are missing."""
    by_name = {(each["protocol"], each["data"], each["method"]): each for each in found}
    for figure, key in FIGURES.items():
        if key in by_name:
            record.figures[figure] = by_name[key]["mean"]
    for figure, (protocol, data) in BEST.items():
        models = [each for key, each in by_name.items() if key[:2] == (protocol, data) and "+pair-features" in key[2]]
        if models:
            record.figures[figure] = max(models, key=lambda each: each["validation_mean"])["mean"]
    ratios = [
        each["mean"] / next(row.test for row in find_protocol("evolvegcn").published(data) if "-O" in row.method)
        for (protocol, data, method), each in by_name.items()
        if protocol == "evolvegcn" and method == "evolvegcn-o"
    ]
    if ratios:
        record.figures["evolvegcno_vs_table_worst"] = min(ratios)
    if found:
        record.figures["coverage_min"] = min(each["coverage"] for each in found)
    for figure, name in FROM_OTHERS.items():
        others = Record(name, quick=False)
        others.recall(None)
        if figure in others.figures:
            record.figures[figure] = others.figures[figure]
    for figure in (*FIGURES, *BEST, *FROM_OTHERS):
        if figure not in record.figures:
            record.missing.setdefault(figure, "not measured in this run")


def main() -> None:
    """Runs all protocols and prints every method beside the published rows."""
    parser = option_parser(__doc__)
    parser.add_argument("--workers", type=int, default=2, help="processes side by side, of one thread each")
    parser.add_argument("--partial", type=Path, default=Path("protocols.partial.jsonl"), help="results so far")
    parser.add_argument(
        "--match",
        nargs="+",
        default=["*"],
        metavar="PATTERN",
        help="jobs to run, by protocol, data, method and seed, such as 'utg *' or 'evolvegcn as733 evolvegcn-o 0'; "
        "a method's result replaces that in the record, those of other methods stay",
    )
    chosen = parser.parse_args()
    record = Record("protocols", chosen.quick)
    if chosen.match != ["*"]:
        record.recall(chosen.json)
        record.missing.clear()  # figures that are still missing are found again below
    partial = chosen.partial.with_suffix(".quick.jsonl") if chosen.quick else chosen.partial
    results = run_jobs(run_job, jobs(quick=chosen.quick, match=chosen.match), chosen.workers, partial, record.missing)
    measured = {"commit": commit(), "cpu": cpu(), "cores": os.cpu_count()}
    record.samples |= {
        f"{each['protocol']} {each['data']} {each['method']}": each | measured for each in merge(results)
    }
    found = list(record.samples.values())
    fill_figures(record, found)
    record.figures["seconds"] = sum(each["seconds"] for each in found)
    rows = []
    for each in sorted(found, key=lambda each: (each["protocol"], each["data"], -each["mean"])):
        spread = "" if each["deviation"] is None else f" ± {each['deviation']:.4f}"
        values = [f"{each['validation_mean']:.4f}", f"{each['mean']:.4f}{spread}", len(each["seeds"])]
        rows.append([each["protocol"], each["data"], each["method"], *values])
    table(["protocol", "data set", "method", "validation", "test", "seeds"], rows)
    for figure, value in record.figures.items():
        print(f"{figure}: {value:.4g}")
    record.write(chosen.json)


if __name__ == "__main__":
    main()
