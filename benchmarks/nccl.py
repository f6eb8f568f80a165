"""Do ranks on GPUs that talk over NCCL train as one rank does?

Starts 2 and 4 ranks, which share a GPU where there are fewer GPUs; each launch runs many cases. They train every exact
preset with every model, in float64 and, by kernels, in float32, next to the same training on one rank; and every other
preset with every model in float64, next to the same ranks on CPUs. Counted are cases that fail, or whose loss or
trained weights differ, and runs with random delays that do not end. Then ``benchmarks/nccl_profile.py`` profiles a step
of a relay.
``--backend gloo --device cpu`` runs the cases without a GPU, which tests this script.
"""

from __future__ import annotations

import math
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from benchmarks import nccl_profile
from benchmarks.fingerprint import plan_of, task_of
from benchmarks.record import Record, child, option_parser, table, tell
from strobe.comm import Comm, CommError, RankError, SingleRankComm
from strobe.comm.launch.environment import BACKENDS, Backend
from strobe.comm.launch.launcher import run_ranks
from strobe.engine.inputs.resolve import TrainRequest
from strobe.engine.launch.processes import OutputConfig
from strobe.engine.progress import Progress
from strobe.engine.run import Run
from strobe.engine.train import train_on_rank
from strobe.errors import StrobeError
from strobe.graph import DynamicGraph
from strobe.graph.synthetic import Social
from strobe.models import MODELS
from strobe.plan import Plan
from strobe.presets import PRESETS

TOLERANCES = {"float64": (1e-9, 1e-9), "float32": (1e-6, 1e-5)}
"""Largest relative difference of the loss, and of the sum of all gradients, by precision."""

RATE = 0.05
EPOCHS = 3
NUM_DELAYED = 50

Case = tuple[str, str, str]


def cases(*, quick: bool) -> list[Case]:
    """Preset, model and precision; approximate presets in float64 only, and last."""
    found = [
        (name, model, precision)
        for name in sorted(PRESETS, key=equals_one_rank, reverse=True)
        for model in MODELS
        for precision in (TOLERANCES if equals_one_rank(name) else ("float64",))
    ]
    return found[:: len(found) // 11 | 1] if quick else found


def equals_one_rank(name: str) -> bool:
    """Whether ranks take all of one rank's batches, in the order of one rank."""
    plan = plan_of(name)
    return plan.exact and not plan.per_rank_batches


def request(graph: DynamicGraph, case: Case, device: str, **changes: Any) -> TrainRequest:
    """Plain gradient descent: weights move by the sum of all gradients."""
    name, model, precision = case
    options = {"hidden": 8} | ({"heads": 2} if model in ("gat-lstm", "dysat") else {})
    settings = {"epochs": EPOCHS, "threads": 1, "seed": 3, "optimizer": "sgd", "lr": RATE, "evaluate_every": EPOCHS}
    settings |= {"precision": precision, "device": device} | changes
    return TrainRequest(graph, model, task_of(name, model), options, None, settings, None, plan_of(name))


def differences(run: Run, one: Run, start: dict[str, Tensor]) -> tuple[float, float]:
    """Largest relative difference of a loss, and of the way that the weights have gone from ``start``."""
    pairs = zip(run.history, one.history, strict=True)
    loss = max(abs(a["loss"] - b["loss"]) / max(abs(b["loss"]), 1e-30) for a, b in pairs)
    ways = [torch.cat([(weight - start[name]).flatten() for name, weight in _weights(each)]) for each in (run, one)]
    return loss, float((ways[0] - ways[1]).norm() / ways[1].norm().clamp_min(1e-30))


def _weights(run: Run) -> Iterator[tuple[str, Tensor]]:
    for part, module in (("model", run.model), ("head", run.head)):
        yield from ((f"{part}.{name}", weight.detach().double().cpu()) for name, weight in module.named_parameters())


def compare(graph: DynamicGraph, case: Case, device: str, comm: Comm) -> dict[str, Any]:
    """Train a case on all ranks; beside it on this one alone or, where that is something else, on all ranks' CPUs."""
    try:
        run = train_on_rank(request(graph, case, device), OutputConfig(), Progress(), comm)
        if equals_one_rank(case[0]):
            alone = _on_one_rank(request(graph, case, device))
            one = train_on_rank(alone, OutputConfig(), Progress(), SingleRankComm())
        else:
            one = train_on_rank(request(graph, case, "cpu"), OutputConfig(), Progress(), comm)
    except CommError:
        raise
    except StrobeError as error:
        comm.wait_sends()
        return {"refused": str(error)}
    except RuntimeError as error:  # of an operation: the same one on all ranks, and the next case may do without it
        return {"failed": str(error)}
    model, head = one.job.make_model()
    start = dict(_weights(replace(one, model=model, head=head)))
    loss, gradients = differences(run, one, start)
    return {"loss": loss, "gradients": gradients}


def _on_one_rank(wanted: TrainRequest) -> TrainRequest:
    assert isinstance(wanted.plan, Plan)
    return replace(wanted, plan=Plan(batching=wanted.plan.batching))


class _DelayedComm:
    """Sleeps at random before operations, so that ranks reach them in any order."""

    def __init__(self, comm: Comm, seed: int) -> None:
        self._comm, self._random = comm, random.Random(1000 * seed + comm.rank)

    def __getattr__(self, name: str) -> Any:
        if name in ("all_to_all_rows_async", "open_pipeline", "all_reduce", "all_reduce_async"):
            time.sleep(self._random.random() * 2e-3)
        return getattr(self._comm, name)


def work_on_rank(
    chosen: list[Case],
    num_delayed: int,
    device: str,
    comm: Comm,
    report: Callable[[Any], None],
    limit_s: float = math.inf,
) -> dict[str, Any]:
    """All cases one after the other, each reported by rank 0; then runs with delays, whose losses must not differ."""
    graph = Social(nodes=40, snapshots=12, edges=90, communities=4, labels=True, seed=1).write()
    found: dict[str, Any] = {}
    began = time.perf_counter()
    for case in chosen:
        if comm.broadcast_object(time.perf_counter() - began > limit_s, kind="setup"):
            break
        name = " ".join(case)
        found[name] = compare(graph, case, device, comm)
        if comm.rank == 0:
            report((name, found[name]))
    preset_name = next(name for name in PRESETS if plan_of(name).exact)
    losses = set()
    for seed in range(num_delayed):
        delayed = cast(Comm, _DelayedComm(comm, seed))
        wanted = request(graph, (preset_name, "tgcn", "float64"), device)
        run = train_on_rank(wanted, OutputConfig(), Progress(), delayed)
        losses.add(run.history[-1]["loss"])
    counts = {"delayed": num_delayed, "distinct_losses": len(losses)}
    return {"backend": comm.backend, "cases": found, "left_out": len(chosen) - len(found), **counts}


def launch(
    chosen: list[Case], num_delayed: int, num_ranks: int, device: str, backend: Backend, limit_s: float
) -> dict[str, Any]:
    """Start ranks that run cases. Where a rank fails, what they reported before stays, and the case that failed."""
    found: dict[str, Any] = {}
    began = time.perf_counter()

    def keep(_: int, event: tuple[str, Any]) -> None:
        found[event[0]] = event[1]
        print(f"[{len(found)}/{len(chosen)}] {time.perf_counter() - began:.0f} s {event[0]}", file=sys.stderr)

    work = partial(work_on_rank, chosen, num_delayed, device, limit_s=limit_s)
    try:
        return run_ranks(work, num_ranks, threads=1, device=device, backend=backend, on_event=keep)[0]
    except RankError as error:
        rest = [" ".join(case) for case in chosen if " ".join(case) not in found]
        failed = {rest[0] if rest else "with delays": {"failed": str(error)}}
        counts = {"left_out": 0, "delayed": 0, "distinct_losses": 1}
        return {"backend": backend, "cases": found | failed, "not_run": rest[1:], **counts}


def merge_launches(launches: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The cases of all launches, and their runs with delays."""
    return {
        "backend": launches[0]["backend"],
        "cases": {case: result for each in launches for case, result in each["cases"].items()},
        "not_run": [case for each in launches for case in each.get("not_run", ())],
        "left_out": sum(each["left_out"] for each in launches),
        "delayed": sum(each["delayed"] for each in launches),
        "distinct_losses": max(each["distinct_losses"] for each in launches),
    }


def failures(found: dict[str, Any]) -> dict[str, Any]:
    """Cases that failed, or that differ by more than the tolerance of their precision."""

    def differs(case: str, result: dict[str, Any]) -> bool:
        limits = zip(("loss", "gradients"), TOLERANCES[case.split()[-1]], strict=True)
        return not all(result[kind] <= limit for kind, limit in limits)

    return {
        case: result
        for case, result in found["cases"].items()
        if "failed" in result or ("loss" in result and differs(case, result))
    }


def profile_steps(nodes: int) -> dict[str, nccl_profile.ModelProfile]:
    """Profile a step of each model on one rank and on two that share a GPU."""
    found = {}
    for model in nccl_profile.MODELS:
        work = partial(nccl_profile.profile_on_rank, model, nodes)
        ranks = run_ranks(work, 2, threads=4, device="cuda", backend="nccl")
        one, two = (nccl_profile.kernel_seconds(model, nodes, count) for count in (1, 2))
        found[model] = nccl_profile.ModelProfile(ranks, (one, two))
    return found


def main() -> None:
    """Run all cases on 2 and 4 ranks and print the worst of each precision, then profile steps."""
    parser = option_parser(__doc__)
    parser.add_argument("--backend", choices=BACKENDS, default="nccl")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4], help="none: only profile")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="ranks of all launches at a time")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds after which no case begins")
    parser.add_argument("--no-profile", action="store_true", help="only run cases")
    chosen = parser.parse_args()
    if chosen.child:
        num_ranks, part, num_parts, num_delayed = map(int, chosen.child)
        mine = [case for case in cases(quick=chosen.quick) if list(MODELS).index(case[1]) % num_parts == part]
        return tell(**launch(mine, num_delayed, num_ranks, chosen.device, chosen.backend, chosen.limit))
    record = Record("nccl", chosen.quick)
    record.recall(chosen.json)
    options = ["--device", chosen.device, "--backend", chosen.backend, "--limit", chosen.limit]
    for num_ranks in chosen.ranks:
        num_parts = max(1, min(chosen.processes // num_ranks, len(MODELS)))
        num_delayed = -(-(3 if chosen.quick else NUM_DELAYED) // num_parts)
        start = partial(_start_launch, num_ranks, num_parts, num_delayed, [*options, *["--quick"] * chosen.quick])
        with ThreadPoolExecutor(num_parts) as pool:
            record.samples[f"{num_ranks} ranks"] = merge_launches(list(pool.map(start, range(num_parts))))
    summarize(record)
    if chosen.backend == "nccl" and not chosen.no_profile:
        profiles = profile_steps(20_000 if chosen.quick else 300_000)
        record.samples["profiles"] = {model: asdict(each) for model, each in profiles.items()}
        record.figures |= nccl_profile.figures(profiles)
    print(*(f"{figure}: {value:.3g}" for figure, value in record.figures.items()), sep="\n")
    if chosen.backend == "nccl":
        record.write(chosen.json)
    return None


def summarize(record: Record) -> None:
    """Print the worst differences and all failures, and count cases and failures."""
    rows, num_cases, num_failures = [], 0, 0
    for ranks, found in record.samples.items():
        if "cases" not in found:
            continue
        wrong = failures(found)
        compared = {case: result for case, result in found["cases"].items() if "loss" in result}
        num_cases += len(compared)
        num_failures += len(wrong) + len(found["not_run"]) + found["distinct_losses"] - 1
        record.missing.pop(ranks, None)
        if found["left_out"]:
            record.missing[ranks] = f"{found['left_out']} cases did not begin within the limit of seconds"
        for precision in TOLERANCES:
            worst = [result for case, result in compared.items() if case.endswith(precision)]
            errors = [f"{max((each[kind] for each in worst), default=0):.1e}" for kind in ("loss", "gradients")]
            rows.append([ranks, found["backend"], precision, len(worst), *errors])
        for case, result in wrong.items():
            print(f"{ranks}, {case}: {result}")
    table(["ranks", "over", "precision", "cases", "worst loss", "worst gradients"], rows)
    record.figures |= {"nccl_cases": num_cases, "nccl_failures": num_failures}


def _start_launch(
    num_ranks: int, num_parts: int, num_delayed: int, options: Sequence[object], part: int
) -> dict[str, Any]:
    """A part of the models, in a process of its own: one process cannot launch twice at a time."""
    return child("benchmarks.nccl", num_ranks, part, num_parts, num_delayed, *options)


if __name__ == "__main__":
    main()
