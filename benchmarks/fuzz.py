"""Does any input make Strobe answer wrongly, fail in a foreign way, crash or hang?

Random inputs for everything that reads what users give: text tables against an independent slow reader; Parquet, NPZ,
dates and options; graph directories, damaged with and without forged checksums, opened and trained one step; run
directories, checkpoints and plans. Inputs run in worker processes. Each input is counted as one of

- silent: Strobe accepted it and its result differs from the oracle's;
- foreign: an exception that is not StrobeError;
- native_crash: the process died of a signal;
- hang: more than 10 seconds;
- or well: accepted and equal, or refused with a StrobeError.

A finding names its seed; ``--replay texts:0.17`` runs that input again in this process.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import cast

from benchmarks.fuzzing.campaign import Outcome, run_campaign, run_input
from benchmarks.fuzzing.target import FuzzTarget
from benchmarks.record import Record, option_parser, table

TARGETS: dict[str, str] = {
    "graphs": "benchmarks.fuzzing.graph_directories:GraphDirectories",
    "runs": "benchmarks.fuzzing.run_files:RunFiles",
    "tables": "benchmarks.fuzzing.tables:Tables",
    "texts": "benchmarks.fuzzing.texts:Texts",
}
"""The longest comes last: it has the time that the others leave over."""
VERDICTS = {"silent": "silent", "foreign": "foreign", "native_crashes": "native_crash", "hangs": "hang"}
_QUICK_S = 40.0


def target_class(name: str) -> Callable[[], FuzzTarget]:
    """The class of a target by its name."""
    module, _, attribute = TARGETS[name].partition(":")
    return cast(Callable[[], FuzzTarget], getattr(import_module(module), attribute))


def replay(which: str) -> int:
    """Run one input again in this process, and say what came of it."""
    name, _, seed = which.partition(":")
    target = target_class(name)()
    with tempfile.TemporaryDirectory(prefix="strobe-fuzz-") as scratch:
        (cache := Path(scratch) / "cache").mkdir()
        target.setup(cache)
        verdict, detail = run_input(target, seed, Path(scratch) / "input")
    print(verdict, detail, sep="\n")
    return int(verdict in VERDICTS.values())


def main() -> int:
    """Run the campaign and write its record."""
    parser = option_parser(__doc__)
    parser.add_argument("--seconds", type=float, help="stop after this many seconds (all targets together)")
    parser.add_argument("--seed", type=int, default=0, help="of the campaign")
    parser.add_argument("--targets", default=",".join(TARGETS), help="which, with commas: " + ", ".join(TARGETS))
    parser.add_argument("--inputs", type=int, help="inputs per target, instead of a full campaign's")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--replay", metavar="TARGET:SEED", help="run one input again in this process")
    chosen = parser.parse_args()
    if chosen.replay:
        return replay(chosen.replay)
    names, began = chosen.targets.split(","), monotonic()
    seconds = chosen.seconds or (_QUICK_S if chosen.quick else float("inf"))
    outcomes: dict[str, Outcome] = {}
    for number, name in enumerate(names):
        make = target_class(name)
        share = (began + seconds - monotonic()) / (len(names) - number)  # what one target leaves over, others use

        def show(outcome: Outcome, name: str = name) -> None:
            if sys.stderr.isatty() or outcome.inputs % 10_000 == 0:
                print(f"\r{name}: {outcome.inputs:,} inputs, {len(outcome.findings)} findings", end="", file=sys.stderr)

        inputs = chosen.inputs or make().inputs
        until = monotonic() + share
        outcomes[name] = run_campaign(
            make, inputs=inputs, seed=chosen.seed, workers=chosen.workers, until=until, progress=show
        )
        print(file=sys.stderr)
    record = Record("fuzz", chosen.quick)
    record.figures["inputs"] = sum(outcome.inputs for outcome in outcomes.values())
    record.figures |= {f"inputs_{name}": outcome.inputs for name, outcome in outcomes.items()}
    findings = [finding for outcome in outcomes.values() for finding in outcome.findings]
    for figure, verdict in VERDICTS.items():
        record.figures[figure] = sum(finding.verdict == verdict for finding in findings)
    record.figures["seconds"] = monotonic() - began
    record.samples = {
        "seed": chosen.seed,
        "outcomes": {name: dict(outcome.outcomes) for name, outcome in outcomes.items()},
        "slowest_s": {name: outcome.slowest_s for name, outcome in outcomes.items()},
        "findings": [asdict(finding) for finding in findings],
    }
    rows = [[name, f"{outcome.inputs:,}", *_counts(outcome)] for name, outcome in outcomes.items()]
    table(["target", "inputs", *VERDICTS, "well"], rows)
    for finding in findings[:20]:
        print(f"\n{finding.verdict} {finding.target}:{finding.seed}\n{finding.detail}")
    record.write(chosen.json)
    return int(bool(findings))


def _counts(outcome: Outcome) -> list[str]:
    bad = [sum(finding.verdict == verdict for finding in outcome.findings) for verdict in VERDICTS.values()]
    return [f"{count:,}" for count in (*bad, outcome.inputs - len(outcome.findings))]


if __name__ == "__main__":
    sys.exit(main())
