"""Do losses stay the same, to the last bit, from commit to commit?

Trains every preset with every model for three epochs in float64, on one rank and on two gloo ranks, and compares the
losses and a digest of the final weights with ``benchmarks/fingerprint.json``. A refactoring must not change any of
them; a commit that replaces an algorithm says so and records them again with ``--record``.

Presets are run in their repeatable form: loads and costs are counted, not measured; weights are averaged by steps, not
by the clock; batch sizes are random instead of learned from seconds; validation does not run in the background.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import Record, option_parser, table
from strobe.comm import Comm, SingleRankComm
from strobe.comm.launch.launcher import run_ranks
from strobe.engine.inputs.resolve import TrainRequest
from strobe.engine.launch.processes import OutputConfig
from strobe.engine.progress import Progress
from strobe.engine.train import train_on_rank
from strobe.errors import StrobeError
from strobe.graph import DynamicGraph
from strobe.graph.synthetic import Social
from strobe.models import MODELS
from strobe.placement import Chunks
from strobe.plan import Plan
from strobe.presets import PRESETS, preset
from strobe.sync import Average

RECORDED = Path(__file__).with_name("fingerprint.json")
RANKS = (1, 2)
EPOCHS = 3
TASKS = ("regression", "classification", "link-prediction")
OPTIONS: dict[str, dict[str, Any]] = {
    "bvr": {"size": 12},
    "dbov": {"size": 12},
    "dygnex": {"times": "counted"},
    "dynahb": {"size_policy": "random", "async_evaluation": False, "vertices": (0.2, 0.4)},
    "flare": {"chunks": 4, "full": 1, "decayed": 3, "min_keep": 0.3},
    "distdy": {"size": 16},
}
"""Options of presets: batches small enough for a graph of 40 nodes, and nothing that reads a clock."""
OVERRIDES: dict[str, dict[str, Any]] = {
    "dgc": {"placement": Chunks(loads="counted", per_rank=4)},
    "dynahb": {"sync": Average(every=2)},
}
"""Axes of presets that are replaced by their repeatable form."""
SLICE = (
    ("relay", "tgcn"),
    ("dgc", "dysat"),
    ("dynahb", "wd-gcn"),
    ("dygnex", "gat-lstm"),
    ("flare", "tgcn"),
    ("distdy", "sage"),
)
"""What the test suite and ``--quick`` run."""

Case = tuple[str, str]


def plan_of(name: str) -> Plan:
    """A preset in its repeatable form."""
    return replace(preset(name, **OPTIONS.get(name, {})), **OVERRIDES.get(name, {}))


def task_of(name: str, model: str) -> str:
    """Tasks take turns; batches of some nodes have no pairs."""
    plan = plan_of(name)
    turn = (list(PRESETS).index(name) + list(MODELS).index(model)) % len(TASKS)
    single = plan.batching.needs_hops or "local inputs" in plan.exchange.gives
    return TASKS[turn % 2] if single else TASKS[turn]


def fingerprint(graph: DynamicGraph, name: str, model: str, comm: Comm, epochs: int = EPOCHS) -> dict[str, Any]:
    """Train one case on this rank; its losses and a digest of its weights, or why it was refused."""
    options = {"hidden": 8} | ({"heads": 2} if model in ("gat-lstm", "dysat") else {})
    settings = {"epochs": epochs, "threads": 1, "precision": "float64", "seed": 3}
    given = TrainRequest(graph, model, task_of(name, model), options, None, settings, None, plan_of(name))
    try:
        run = train_on_rank(given, OutputConfig(), Progress(), comm)
    except StrobeError as error:
        if comm.num_ranks > 1:
            comm.wait_sends()
        return {"refused": type(error).__name__}
    weights = hashlib.sha256()
    for value in (*run.model.state_dict().values(), *run.head.state_dict().values()):
        weights.update(value.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return {"losses": [repr(line["loss"]) for line in run.history], "weights": weights.hexdigest()[:16]}


def fingerprints(
    cases: Iterable[Case], ranks: Iterable[int] = RANKS, epochs: int = EPOCHS
) -> dict[str, dict[str, Any]]:
    """All cases on each number of ranks; several ranks are processes that go through all cases one after the other."""
    cases = list(cases)
    graph = Social(nodes=40, snapshots=12, edges=90, communities=4, labels=True, seed=1).write()

    def work(comm: Comm, _: Any) -> dict[str, dict[str, Any]]:
        return {
            f"{name} {model} {comm.num_ranks}": fingerprint(graph, name, model, comm, epochs) for name, model in cases
        }

    found: dict[str, dict[str, Any]] = {}
    for num_ranks in ranks:
        found |= work(SingleRankComm(), None) if num_ranks == 1 else run_ranks(work, num_ranks, threads=1)[0]
    return found


def main() -> int:
    """Compare all cases with those that were recorded, or record them."""
    parser = option_parser(__doc__)
    parser.add_argument("--record", action="store_true", help="write the losses as the ones to compare with")
    chosen = parser.parse_args()
    cases = list(SLICE) if chosen.quick else [(name, model) for name in PRESETS for model in MODELS]
    found = fingerprints(cases)
    if chosen.record:
        RECORDED.write_text(
            "{\n" + ",\n".join(f"{json.dumps(case)}: {json.dumps(found[case])}" for case in found) + "\n}\n"
        )
        print(f"recorded {len(found)} cases in {RECORDED.name}")
        return 0
    known = json.loads(RECORDED.read_text())
    changed = [case for case, value in found.items() if known.get(case) != value]
    table(["case", "recorded", "now"], [[case, known.get(case), found[case]] for case in changed[:20]])
    print(f"{len(found)} cases, {len(changed)} changed")
    record = Record("fingerprint", chosen.quick)
    record.figures |= {"fingerprint_cases": len(found), "fingerprint_changed": len(changed)}
    record.write(chosen.json)
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())
