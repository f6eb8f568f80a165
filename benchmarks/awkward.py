"""Does any awkward graph break a model or a task?

Every model, for every task, on thirty-four awkward graphs (benchmarks/awkward_graphs.py): each case is either trained
for two epochs and scored, or refused with a StrobeError. A finding is anything else: a foreign exception, a loss or a
score that is not finite, a case of more than 30 seconds. Cases run in child processes, so a native crash is a finding,
too, and names its case.
"""

from __future__ import annotations

import itertools
import math
import multiprocessing
import random
import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from time import monotonic
from typing import NamedTuple

import numpy as np

from benchmarks.awkward_graphs import GRAPHS
from benchmarks.record import Record, option_parser, table
from strobe.errors import StrobeError
from strobe.models import MODELS
from strobe.plan import Plan
from strobe.store import Delta, Full
from strobe.tasks import TASKS

CASE_S = 30.0
_QUICK_S = 40.0


class Case(NamedTuple):
    """One model, one task, one graph."""

    model: str
    task: str
    graph: str

    def __str__(self) -> str:
        return f"{self.model} / {self.task} / {self.graph}"


class Verdict(NamedTuple):
    """trained, refused or finding, and the message or traceback."""

    outcome: str
    detail: str = ""


def all_cases() -> list[Case]:
    """Every combination."""
    return [Case(*case) for case in itertools.product(sorted(MODELS), sorted(TASKS), sorted(GRAPHS))]


def pairwise_cases(seed: int) -> list[Case]:
    """Few cases in which every graph meets every task, and every model meets every task and many graphs."""
    models = sorted(MODELS)
    random.Random(seed).shuffle(models)
    return [
        Case(models[(i + 4 * j) % len(models)], task, graph)
        for i, graph in enumerate(sorted(GRAPHS))
        for j, task in enumerate(sorted(TASKS))
    ]


def run_case(case: Case, seed: int) -> Verdict:
    """Train and score one case in this process."""
    from strobe.api import train

    rng = np.random.default_rng([seed, *case.graph.encode()])
    options = {"hidden": 4} | ({"heads": 2} if case.model in ("dysat", "gat-lstm") else {})
    plan = Plan(store=Delta(window=2) if rng.random() < 0.5 else Full())
    try:
        graph = GRAPHS[case.graph](rng)
        run = train(graph, case.model, case.task, plan=plan, epochs=2, threads=1, seed=seed, model_options=options)
    except StrobeError as error:
        return Verdict("refused", f"{type(error).__name__}: {error}")
    except Exception:
        return Verdict("finding", traceback.format_exc(limit=-6))
    losses = [line["loss"] for line in run.history]
    if not all(map(math.isfinite, losses)):
        return Verdict("finding", f"losses {losses}")
    for part, scores in (("validation", run.validation), ("test", run.test)):
        if bool(scores) != bool(run.baselines[part]):  # where nothing can be scored, trivial answers cannot be either
            return Verdict("finding", f"{part} has scores {scores}, trivial answers {run.baselines[part]}")
        if not all(map(math.isfinite, scores.values())):
            return Verdict("finding", f"{part} has scores {scores}, trivial answers {run.baselines[part]}")
    return Verdict("trained")


def _work(cases: list[Case], seed: int, pipe: Connection) -> None:
    for case in cases:
        pipe.send(run_case(case, seed))
    pipe.send(None)


def run_cases(cases: Iterable[Case], seed: int, until: float) -> Iterator[tuple[Case, Verdict]]:
    """Run cases in a child process, and go on after the one that crashed or hung."""
    waiting = list(cases)
    context = multiprocessing.get_context("spawn")
    while waiting and monotonic() < until:
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(waiting, seed, there), daemon=True)
        process.start()
        there.close()
        try:
            while waiting and monotonic() < until:
                if not here.poll(CASE_S):
                    verdict = Verdict("finding", f"over {CASE_S:.0f} s")
                    yield waiting.pop(0), verdict
                    break
                verdict = here.recv()
                yield waiting.pop(0), verdict
        except EOFError:
            process.join()
            yield waiting.pop(0), Verdict("finding", f"the process ended with code {process.exitcode}")
        finally:
            process.kill()
            process.join()


def main() -> int:
    """Run the matrix and write its record."""
    parser = option_parser(__doc__)
    parser.add_argument("--seconds", type=float, help="stop after this many seconds")
    parser.add_argument("--seed", type=int, default=0, help="of graphs and weights")
    chosen = parser.parse_args()
    cases = pairwise_cases(chosen.seed) if chosen.quick else all_cases()
    random.Random(chosen.seed).shuffle(cases)  # what is left out when time is up is spread over all
    until = monotonic() + (chosen.seconds or (_QUICK_S if chosen.quick else math.inf))
    found = list(run_cases(cases, chosen.seed, until))
    counts = Counter(verdict.outcome for _, verdict in found)
    record = Record("awkward", chosen.quick)
    record.figures = {
        "cases": len(found),
        "trained": counts["trained"],
        "refused": counts["refused"],
        "findings": counts["finding"],
    }
    findings = [(case, verdict) for case, verdict in found if verdict.outcome == "finding"]
    record.samples = {
        "seed": chosen.seed,
        "graphs": {name: _of_graph(name, found) for name in GRAPHS},
        "refusals": dict(Counter(verdict.detail for _, verdict in found if verdict.outcome == "refused")),
        "findings": [{"case": case._asdict(), "detail": verdict.detail} for case, verdict in findings],
    }
    table(list(record.figures), [[f"{value:,.0f}" for value in record.figures.values()]])
    for case, verdict in findings[:20]:
        print(f"\n{case}\n{verdict.detail}")
    record.write(chosen.json)
    return int(bool(findings))


def _of_graph(name: str, found: list[tuple[Case, Verdict]]) -> dict[str, int]:
    return dict(Counter(verdict.outcome for case, verdict in found if case.graph == name))


if __name__ == "__main__":
    sys.exit(main())
