"""Does anything that Strobe predicts, scores or fits depend on a snapshot that has not been read yet?

For every task, model and preset: everything after snapshot c (edges, features, labels, presence) is replaced, and what
lies at or before c must stay as it is.

- train: a run on the graph and one on the changed graph, where c is the last snapshot that training and validation may
  know. Weights, losses, fitted numbers, validation metrics and baselines, and predictions up to c must be equal.
- evaluate: the trained weights on both graphs, for several c. Predictions up to c, known targets up to c, and metrics
  and baselines of parts whose targets lie at or before c must be equal.
- predict: the weights on the graph that ends with snapshot c. The prediction for what comes next must be the one that
  the whole graph gives at c.
- watch: snapshots that arrive one by one, from both graphs. Everything recorded until snapshot c has arrived must be
  equal.

And a random walk, of which no model can forecast more than its last value, is forecast: figures ``walk_…``.

Equal is bit for bit where the changed graph has as many cells; with other nodes present, within 1e-12 in float64. All
on one rank. A combination that Strobe refuses is counted as refused.
"""

from __future__ import annotations

import gc
import os
import random
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from itertools import product
from multiprocessing import get_context
from time import monotonic
from typing import Any

from benchmarks.causality_checks import (
    TASKS,
    Case,
    RefusedError,
    ViolationError,
    check_evaluate,
    check_predict,
    check_train,
    check_watch,
    walk_errors,
)
from benchmarks.record import Record, option_parser, table
from strobe.models import MODELS
from strobe.presets import PRESETS

import torch  # isort: skip

CHECKS: dict[str, Callable[[Case], None]] = {
    "train": check_train,
    "evaluate": check_evaluate,
    "predict": check_predict,
    "watch": check_watch,
}


def all_cases() -> list[Case]:
    """Every task, model, preset and way, with and without changes of presence."""
    found = [
        Case(task, model, plan, way, presence)
        for task, model, plan, way, presence in product(TASKS, MODELS, PRESETS, CHECKS, (False, True))
    ]
    # Only plans whose batches are sampled train while snapshots arrive; a graph that ends has no changed future.
    return [
        case
        for case in found
        if (case.way != "watch" or case.plan == "distdy") and (case.way != "predict" or not case.presence)
    ]


def run_case(case: Case) -> tuple[str, str]:
    """``equal``, ``refused`` or ``violation``, and why."""
    try:
        CHECKS[case.way](case)
    except ViolationError as violation:
        return "violation", str(violation)
    except RefusedError as refused:
        return "refused", str(refused)
    return "equal", ""


def pairwise(cases: list[Case], seed: int) -> list[Case]:
    """A few cases such that any two values of different fields that occur together in a case do so in one of them."""
    order = random.Random(seed).sample(cases, len(cases))
    left = {pair for case in cases for pair in _pairs(case)}
    chosen = []
    for case in order:
        new = left & _pairs(case)
        if new:
            chosen.append(case)
            left -= new
    return chosen


def _pairs(case: Case) -> set[tuple[Any, ...]]:
    values = list(asdict(case).items())
    return {(a, b) for k, a in enumerate(values) for b in values[:k]}


def main() -> int:
    """Run the cases and write the record."""
    parser = option_parser(__doc__)
    parser.add_argument("--seconds", type=float, help="begin no case after this many seconds")
    parser.add_argument("--seed", type=int, default=0, help="of graphs and of the order of cases")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--only", default="", help="only cases whose name holds this text")
    chosen = parser.parse_args()
    began = monotonic()
    cases = [replace(case, seed=chosen.seed) for case in all_cases() if chosen.only in case.name]
    first, others = pairwise(cases, chosen.seed), random.Random(chosen.seed).sample(cases, len(cases))
    cases = first[:60] if chosen.quick else list(dict.fromkeys([*first, *others]))
    until = began + (chosen.seconds or (35 if chosen.quick else float("inf")))
    found: dict[Case, tuple[str, str]] = {}
    pool = ProcessPoolExecutor(chosen.workers, get_context("spawn"), initializer=_begin_worker)
    waiting = {pool.submit(run_case, case): case for case in cases}
    try:
        for done in as_completed(waiting, timeout=until - began if until < float("inf") else None):
            found[waiting[done]] = done.result()
            if sys.stderr.isatty() or len(found) % 500 == 0:
                print(f"\r{len(found):,} of {len(cases):,} cases", end="", file=sys.stderr)
    except TimeoutError:
        print(f"\rstopped after {len(found):,} of {len(cases):,} cases", file=sys.stderr)
    pool.shutdown(cancel_futures=True)
    return _report(found, chosen, monotonic() - began)


def _begin_worker() -> None:
    """Load what the first run would, and keep it out of garbage collections, which some plans ask for often."""
    torch.set_num_threads(1)
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])
    gc.freeze()


def _report(found: dict[Case, tuple[str, str]], chosen: Any, seconds: float) -> int:
    record = Record("causality", chosen.quick)
    verdicts = [verdict for verdict, _ in found.values()]
    record.figures |= walk_errors(epochs=5 if chosen.quick else 60)
    record.figures |= {
        "cases": len(found) - verdicts.count("refused"),
        "violations": verdicts.count("violation"),
        "refused": verdicts.count("refused"),
        "seconds": seconds,
    }
    rows = []
    for way in CHECKS:
        of_way = [verdict for case, (verdict, _) in found.items() if case.way == way]
        rows.append([way, len(of_way), *(of_way.count(each) for each in ("equal", "refused", "violation"))])
    table(["way", "cases", "equal", "refused", "violation"], rows)
    violations = {case.name: why for case, (verdict, why) in found.items() if verdict == "violation"}
    reasons = sorted({why for verdict, why in found.values() if verdict == "refused"})
    record.samples = {"seed": chosen.seed, "ways": rows, "violations": violations, "reasons_to_refuse": reasons}
    for name, value in record.figures.items():
        print(f"{name}: {value:.4g}")
    for name, why in list(violations.items())[:30]:
        print(f"violation: {name}: {why}")
    record.write(chosen.json)
    return int(bool(violations))


if __name__ == "__main__":
    sys.exit(main())
