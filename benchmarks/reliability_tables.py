"""Tables of docs/reliability.md, from the records of the campaigns."""

from __future__ import annotations

from typing import Any


def causality(record: dict[str, Any]) -> list[str]:
    """What was compared, by the way the future could leak in."""
    figures = record["figures"]
    rows = [
        f"| {way} | {cases:,} | {equal:,} | {refused:,} | {violations:,} |"
        for way, cases, equal, refused, violations in record["samples"]["ways"]
    ]
    return [
        "| way | combinations | equal | refused | violations |",
        "|---|---|---|---|---|",
        *rows,
        "",
        f"A random walk of 700 steps: the error of the forecast is {figures['walk_forecast_vs_persistence']:.3f} times "
        f"that of persistence ({figures['walk_persistence_mse']:.2f}), the baseline *last value* is persistence "
        f"({figures['walk_baseline_mse']:.2f}). Labels without a delay: no figure below "
        f"{figures['walk_labels_least_mse']:.0f}.",
    ]


def fuzz(record: dict[str, Any]) -> list[str]:
    """Inputs and findings by target."""
    samples, figures = record["samples"], record["figures"]
    kinds = {"silent": "silent", "foreign": "foreign", "native_crash": "native crashes", "hang": "hangs"}
    rows = []
    for target, slowest in samples["slowest_s"].items():
        found = [finding["verdict"] for finding in samples["findings"] if finding["target"] == target]
        counts = " | ".join(f"{found.count(kind):,}" for kind in kinds)
        rows.append(f"| `{target}` | {figures[f'inputs_{target}']:,} | {counts} | {slowest:.1f} s |")
    return [
        f"| target | inputs | {' | '.join(kinds.values())} | slowest |",
        f"|---|---|{'---|' * len(kinds)}---|",
        *rows,
        "",
        f"{figures['inputs']:,} inputs, seed {samples['seed']}, {figures['seconds'] / 60:.0f} minutes on "
        f"{record['hardware']['cores']} cores.",
    ]


def kills(record: dict[str, Any]) -> list[str]:
    """What came of all kills together, and of cases without one."""
    figures = record["figures"]
    names = {
        "kills": "kills",
        "resumed": "run again with success",
        "identical": "came to the same bytes",
        "blocked": "folders that block",
        "orphans": "processes left over",
        "leaks": "files, descriptors and shared memory left over",
        "clock_cases": "runs under a clock that jumps",
        "clock_identical": "of these, the same bytes",
        "memory_cases": "runs with little memory",
        "memory_identical": "of these, run again to the same bytes",
    }
    rows = [f"| {name} | {figures[figure]:,.0f} |" for figure, name in names.items()]
    return ["| what | number |", "|---|---|", *rows]


def awkward(record: dict[str, Any]) -> list[str]:
    """The matrix in a sentence."""
    figures = record["figures"]
    return [
        f"{figures['cases']:,.0f} cases: {figures['trained']:,.0f} trained and scored, {figures['refused']:,.0f} "
        f"refused, {figures['findings']:,.0f} findings.",
    ]
