"""The tables of benchmarks/gpu.py and benchmarks/gpu_memory.py, from their records."""

from __future__ import annotations

from typing import Any

_MODELS = {
    "tgcn": "T-GCN",
    "mpnn-lstm": "MPNN-LSTM",
    "gat-lstm": "GAT-LSTM",
    "evolvegcn-o": "EvolveGCN-O",
    "dysat": "DySAT",
}


def steps(record: dict[str, Any]) -> list[str]:
    """A step of every model in every mode, both sides."""
    lines = ["| model | mode | ms | GiB |", "|---|---|---|---|"]
    for model, name in _MODELS.items():
        for mode, found in record["samples"].get(model, {}).items():  # the record may be older than the model
            if isinstance(found, dict):
                lines.append(f"| {name} | {mode} | {found['ms']:.1f} | {found['gib']:.1f} |")
    return lines


def products(record: dict[str, Any]) -> list[str]:
    """The sparse product, a row a law and a column a width: ours / cuSPARSE's, milliseconds."""
    rows = record["samples"]["products"]
    widths = sorted({row["width"] for row in rows})
    lines = ["| degrees | " + " | ".join(str(width) for width in widths) + " |", "|---" * (len(widths) + 1) + "|"]
    for law in dict.fromkeys(row["law"] for row in rows):
        cells = [f"{row['ms']:.2f} / {row['cusparse_ms']:.2f}" for row in rows if row["law"] == law]
        lines.append(f"| {law} | " + " | ".join(cells) + " |")
    return lines


def figures(record: dict[str, Any]) -> list[str]:
    """Ceilings, errors and figures."""
    samples = record["samples"]
    ceilings, tgcn = samples["ceilings"], samples["tgcn"]
    lines = ["| figure | value |", "|---|---|", f"| GPU | {samples['gpu']} |"]
    lines += [
        f"| copy, read and written | {ceilings['copy_gb_s']:,.0f} GB/s |",
        f"| product of matrices, float32 / TF32 | {ceilings['matrix_tflop_s_highest']:.0f} / "
        f"{ceilings['matrix_tflop_s_high']:.0f} TFLOP/s |",
        f"| T-GCN, floor by bytes | {tgcn['floor_ms']:.1f} ms |",
        f"| T-GCN, of which the aggregate of the inputs, once a run | {tgcn['aggregate_ms']:.2f} ms |",
    ]
    lines += [
        f"| T-GCN against float64, {mode}: loss, worst gradient | {error['loss']:.0e}, {error['worst gradient']:.0e} |"
        for mode, error in samples["errors"].items()
    ]
    return lines + [f"| `{name}` | {value:.3g} |" for name, value in record["figures"].items()]


def nccl(record: dict[str, Any]) -> list[str]:
    """Ranks over NCCL: cases by number of ranks and precision, with the worst difference; then figures."""
    lines = ["| ranks | precision | cases | worst loss | worst gradients |", "|---|---|---|---|---|"]
    for ranks, found in record["samples"].items():
        compared = {} if ranks == "profiles" else {k: v for k, v in found["cases"].items() if "loss" in v}
        for precision in ("float64", "float32"):
            some = [result for case, result in compared.items() if case.endswith(precision)]
            if some:
                worst = " | ".join(f"{max(each[kind] for each in some):.0e}" for kind in ("loss", "gradients"))
                lines.append(f"| {ranks} | {precision} | {len(some)} | {worst} |")
        if found.get("left_out"):
            lines.append(f"| {ranks} | both | {found['left_out']} not run | | |")
    figures = [f"| `{name}` | {value:.3g} |" for name, value in record["figures"].items()]
    return [*lines, "", "| figure | value |", "|---|---|", *figures]


def memory(record: dict[str, Any]) -> list[str]:
    """Runs, what they took of the GPU, how far off the prediction was, and what an epoch took; then figures."""
    lines = ["| graph, model | windows | GiB | prediction error | seconds an epoch |", "|---|---|---|---|---|"]
    for case, found in record["samples"].items():
        if not isinstance(found, dict) or "predicted_bytes" not in found:
            continue
        part, *rest = case.split()
        model = _MODELS[rest[0] if rest else "tgcn"]
        graph = f"{found['nodes'] / 1e6:.3g}M nodes, {found['snapshots']} snapshots" if part != "peaks" else "as above"
        error = found["predicted_bytes"] / found["device_bytes"] - 1
        where = "wait on the host" if found["streamed"] else "stay"
        taken = f"{found['device_bytes'] / 2**30:.1f} | {error:+.1%} | {found['epoch_s']:.3g}"
        lines.append(f"| {graph}, {model} | {where} | {taken} |")
    figures = [f"| `{name}` | {value:.3g} |" for name, value in record["figures"].items()]
    return [*lines, "", "| figure | value |", "|---|---|", *figures]
