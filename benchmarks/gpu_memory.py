"""How large a graph trains on one GPU, does it take as much of its memory as was foretold, and what does waiting cost?

*peaks*: models with all windows on the GPU and with two at a time, beside what was foretold. *bitcoin*: a graph of the
shape of soc-bitcoin, 24.6M nodes in 90 snapshots, with a window of 8. *largest*: the largest graph that is foretold to
fit, all of it on the GPU. Every case is a process of its own, so that peaks are its own.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
import torch

import strobe
from benchmarks.record import Record, child, options, table, tell
from strobe.engine.job import Given, choose
from strobe.engine.machine import free_bytes
from strobe.engine.progress import Progress
from strobe.graph import Degrees, DynamicGraph, from_edges
from strobe.planner.device_memory import foretold

MODELS = ("tgcn", "mpnn-lstm", "gat-lstm", "evolvegcn-o", "dysat")
WINDOW = 8
GIB = 2**30
SHAPES = {"peaks": (2_300_000, 3_750_000, 26), "bitcoin": (24_600_000, 1_360_000, 90), "largest": (4_000_000, 1, 13)}
QUICK = {"peaks": (200_000, 300_000, 26), "bitcoin": (400_000, 24_000, 90), "largest": (400_000, 1, 13)}
_FILLED = 0.97
"""Of what is free: the largest graph leaves a little."""


def made(nodes: int, arcs: int, snapshots: int) -> DynamicGraph:
    """All nodes in all snapshots, arcs drawn anew, some sources much more often than others."""
    draw = np.random.default_rng(0)
    ends = ((nodes * draw.random(arcs) ** 4, nodes * draw.random(arcs)) for _ in range(snapshots))
    edges = (np.stack([source, destination]).astype(np.int32) for source, destination in ends)
    return from_edges(list(edges), num_nodes=nodes, x=Degrees(log=True))


def trained(graph: DynamicGraph, model: str, keep: str, epochs: int = 3) -> dict[str, Any]:
    """A run, what was foretold of it, and what it came to."""
    given: dict[str, Any] = {"window": WINDOW, "device": "cuda", "precision": "tf32", "epochs": epochs, "keep": keep}
    began = perf_counter()
    said = foretold(choose(Given(graph, model, "regression", None, None, given), None, Progress()))
    foretelling_s = perf_counter() - began
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    run = strobe.train(graph, model, "regression", **given)
    streamed = run.job.sharing.streamed
    assert run.memory is not None
    return {
        "foretold_bytes": said.resident if streamed is None else said.streamed,
        "device_bytes": run.memory["device_bytes"],
        "host_bytes": 0 if streamed is None else streamed.host_bytes,
        "streamed": streamed is not None,
        "foretelling_s": foretelling_s,
        "epoch_s": min(line["train_s"] for line in run.history),
        "first_epoch_s": run.history[0]["train_s"],
        "run_s": run.seconds,
        "loss": run.history[-1]["loss"],
    }


def largest(nodes: int, snapshots: int) -> dict[str, Any]:
    """The largest graph that is foretold to fit, with as many arcs as nodes; it is trained with all of it there."""
    given: dict[str, Any] = {"window": WINDOW, "device": "cuda", "precision": "tf32"}
    some = made(nodes, nodes, snapshots)
    said = foretold(choose(Given(some, "tgcn", "regression", None, None, given), None, Progress()))
    most = int(nodes * _FILLED * free_bytes(torch.device("cuda")) / said.resident)
    return {"nodes": most, **trained(made(most, most, snapshots), "tgcn", "device", epochs=2)}


def case(name: str, quick: bool, *rest: str) -> dict[str, Any]:
    """One case, in the process that was made for it."""
    nodes, arcs, snapshots = (QUICK if quick else SHAPES)[name]
    if name == "largest":
        return largest(nodes, snapshots)
    began = perf_counter()
    graph = made(nodes, arcs, snapshots)
    shape = {"nodes": nodes, "arcs": graph.num_arcs, "snapshots": snapshots, "made_s": perf_counter() - began}
    model, keep = rest or ("tgcn", "auto")
    return shape | trained(graph, model, keep)


def main() -> None:
    """Runs all cases and prints a table."""
    chosen = options(__doc__ or "")
    if chosen.child:
        name, quick, *rest = chosen.child
        tell(**case(name, quick == "quick", *rest))
        return
    record = Record("gpu_memory", chosen.quick)
    if not torch.cuda.is_available():
        print("this benchmark needs a GPU; torch sees none here")
        return
    size = "quick" if chosen.quick else "full"
    cases = [("peaks", size, model, keep) for model in MODELS for keep in ("device", "host")]
    for each in (*cases, ("bitcoin", size), ("largest", size)):
        found = child("benchmarks.gpu_memory", *each)
        record.samples[" ".join((each[0], *each[2:]))] = found
        taken, error = found["device_bytes"] / GIB, found["foretold_bytes"] / found["device_bytes"] - 1
        print(each, f"{taken:.2f} GiB, foretold {error:+.1%}, {found['epoch_s']:.2f} s", flush=True)
    record.samples["gpu"] = torch.cuda.get_device_name()
    _figures(record)
    rows = [[name, f"{value:.3g}"] for name, value in record.figures.items()]
    table(["figure", "value"], rows)
    record.write(chosen.json)


def _figures(record: Record) -> None:
    found = {name: each for name, each in record.samples.items() if isinstance(each, dict)}
    errors = [abs(each["foretold_bytes"] / each["device_bytes"] - 1) for each in found.values()]
    record.figures["peak_prediction_error"] = max(errors)
    waits = [found[f"peaks {model} host"]["epoch_s"] / found[f"peaks {model} device"]["epoch_s"] for model in MODELS]
    record.figures["waiting_costs_worst"] = max(waits)
    record.figures["bitcoin_epoch_s"] = found["bitcoin"]["epoch_s"]
    record.figures["bitcoin_gib"] = found["bitcoin"]["device_bytes"] / GIB
    record.figures["largest_nodes"] = found["largest"]["nodes"]
    record.figures["largest_gib"] = found["largest"]["device_bytes"] / GIB


if __name__ == "__main__":
    main()
