"""Does whatever is killed go on to the very same bits?

``make``, ``ingest``, ``predict``, ``train``, ``watch`` and ``ranks`` (training on two ranks) run on tiny inputs and are
killed (SIGKILL): before a chosen file-system call, at a random moment, a single rank or the process that started it,
and some a second time while they go on. Then each is run again, as its messages say: with what it kept where it goes
on, plainly where it begins again. It must succeed, come to the same bytes as the run that was not disturbed, and leave
nothing behind: no process, no hidden or temporary file, no shared memory, no descriptor. Others run with a clock that
jumps by hours, or with little memory: they succeed or say that memory is short, and can be run again.

A case is *blocked* where nothing that its messages say makes it run again.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic

from benchmarks.killing.case import Case, Outcome, Undisturbed, leaked_descriptors, run_case, undisturbed
from benchmarks.killing.disturb import Disturbance
from benchmarks.killing.processes import PARENT, forked, wait
from benchmarks.killing.works import RANKS, WORKS, load_modules, prepare
from benchmarks.record import Record, option_parser, table

_QUICK_S = 38.0
_MEMORY_MIB = (4, 16, 64, 256, 1024)


@dataclass(frozen=True, kw_only=True)
class Number:
    """Of cases of a kind for each work; ``calls`` at most, for all calls if there are no more."""

    calls: int = 70
    writes: int = 15
    moments: int = 15
    twice: int = 10
    ranks: int = 60
    clocks: int = 3
    memory: int = len(_MEMORY_MIB)


QUICK = Number(calls=4, writes=1, moments=1, twice=1, ranks=3, clocks=1, memory=1)


def cases(found: dict[str, Undisturbed], number: Number, drawn: random.Random) -> list[Case]:
    """All cases of a campaign, in random order."""
    made: list[Case] = []
    for name, known in found.items():
        if WORKS[name].ranks > 1:
            made += _of_ranks(name, known, found, number.ranks, drawn)
            continue

        def some(most: int, count: int) -> list[int]:
            return drawn.sample(range(1, most + 1), min(count, most))

        calls, writes = (
            some(most, count) for most, count in ((known.calls, number.calls), (known.calls_and_writes, number.writes))
        )
        made += [Case(work=name, kind="call", inside=Disturbance(kill_at=n)) for n in calls]
        made += [Case(work=name, kind="write", inside=Disturbance(kill_at=n, writes=True)) for n in writes]
        made += [Case(work=name, kind="moment", after_s=drawn.uniform(0, known.seconds)) for _ in range(number.moments)]
        made += [
            Case(work=name, kind="twice", inside=Disturbance(kill_at=n), then=Disturbance(kill_at=drawn.randint(1, n)))
            for n in some(known.calls, number.twice)
        ]
        made += [
            Case(work=name, kind="clock", inside=Disturbance(clock_seed=drawn.randrange(1 << 30)))
            for _ in range(number.clocks)
        ]
        made += [
            Case(work=name, kind="memory", inside=Disturbance(memory_mib=mib))
            for mib in drawn.sample(_MEMORY_MIB, number.memory)
        ]
    drawn.shuffle(made)
    return made


def _of_ranks(
    name: str, known: Undisturbed, found: dict[str, Undisturbed], number: int, drawn: random.Random
) -> list[Case]:
    """Half of them at moments, half before a call of rank 0, which writes what one rank alone would."""
    victims = [PARENT, *range(RANKS)]
    calls = found["train"].calls if "train" in found else known.calls
    made = [
        Case(work=name, kind="moment", after_s=drawn.uniform(0, known.seconds), victim=victims[k % len(victims)])
        for k in range(-(-number // 2))
    ]
    return made + [
        Case(work=name, kind="call", inside=Disturbance(kill_at=drawn.randint(1, calls), rank=0))
        for _ in range(number // 2)
    ]


def campaign(names: list[str], number: Number, *, seed: int, workers: int, until: float, folder: Path) -> list[Outcome]:
    """Run cases in ``workers`` processes until all are done, or until the time is up."""
    given, outcomes = folder / "given", []
    check = until == float("inf")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=load_modules) as pool:
        pool.submit(_prepared, given).result()
        first = {
            name: pool.submit(undisturbed, WORKS[name], given, folder / "undisturbed" / name, check=check)
            for name in sorted(names, key=lambda name: -WORKS[name].ranks)
        }
        found = {name: each.result() for name, each in first.items()}
        waiting = [
            pool.submit(run_case, case, found[case.work], given, folder / f"case-{k:04d}")
            for k, case in enumerate(cases(found, number, random.Random(seed)))
        ]
        for done in as_completed(waiting):
            if done.cancelled():
                continue
            outcomes.append(done.result())
            _show(outcomes)
            if monotonic() > until:
                for each in waiting:
                    each.cancel()  # those that run already are waited for
    return outcomes


def _prepared(given: Path) -> None:
    log = given.with_name("prepared.log")
    assert wait(forked(lambda: prepare(given), log), 120.0) == 0, log.read_text()


def _show(outcomes: list[Outcome]) -> None:
    bad = sum(not each.well for each in outcomes)
    print(f"\r{len(outcomes)} cases, {bad} with trouble", end="", file=sys.stderr, flush=True)
    if not outcomes[-1].well:
        print(f"\n{outcomes[-1]}", file=sys.stderr)


def descriptors(names: list[str], given: Path, folder: Path, workers: int) -> dict[str, int]:
    """Descriptors that each work leaves open in its process; on ranks also where a rank is killed every time."""
    wanted = {name: (name, Disturbance()) for name in names}
    if "ranks" in names:
        wanted["ranks, killed"] = ("ranks", Disturbance(kill_at=3, rank=1))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        found = {
            label: pool.submit(leaked_descriptors, WORKS[name], given, folder / f"descriptors-{label}", how)
            for label, (name, how) in wanted.items()
        }
        return {label: each.result() for label, each in found.items()}


def shared_memory() -> set[str]:
    """What is in the memory that processes share by name."""
    return {path.name for path in Path("/dev/shm").iterdir()}


def figures(outcomes: list[Outcome]) -> dict[str, float]:
    """Kills are counted, not cases: some are killed twice."""
    found: dict[str, float] = {
        "kills": sum(each.kills for each in outcomes),
        "resumed": sum(each.kills for each in outcomes if each.resumed),
        "identical": sum(each.kills for each in outcomes if each.identical),
        "blocked": sum(not each.resumed for each in outcomes),
        "orphans": sum(each.orphans for each in outcomes),
        "leaks": sum(each.leaks for each in outcomes),
        "cases": len(outcomes),
        "cases_with_trouble": sum(not each.well for each in outcomes),
    }
    for kind in ("clock", "memory"):
        found[f"{kind}_cases"] = sum(each.case.kind == kind for each in outcomes)
        found[f"{kind}_identical"] = sum(each.case.kind == kind and each.identical for each in outcomes)
    return found


def main() -> int:
    """Run the campaign and write its record."""
    parser = option_parser(__doc__)
    parser.add_argument("--seconds", type=float, help="begin no case after this many seconds")
    parser.add_argument("--seed", type=int, default=0, help="of the campaign")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="cases at a time")
    parser.add_argument("--works", default=",".join(WORKS), help="which, with commas: " + ", ".join(WORKS))
    chosen = parser.parse_args()
    names, began, before = chosen.works.split(","), monotonic(), shared_memory()
    until = began + (chosen.seconds or (_QUICK_S if chosen.quick else float("inf")))
    number = QUICK if chosen.quick else Number()
    with tempfile.TemporaryDirectory(prefix="strobe-kills-") as scratch:
        folder = Path(scratch)
        outcomes = campaign(names, number, seed=chosen.seed, workers=chosen.workers, until=until, folder=folder)
        print(file=sys.stderr)
        open_files = {} if chosen.quick else descriptors(names, folder / "given", folder, chosen.workers)
    left = sorted(shared_memory() - before)
    record = Record("kills", chosen.quick)
    record.figures = figures(outcomes)
    record.figures["leaks"] += len(left) + sum(open_files.values())
    record.figures["seconds"] = monotonic() - began
    counts = Counter((each.case.work, each.case.kind) for each in outcomes)
    record.samples = {
        "seed": chosen.seed,
        "cases": [{"work": work, "kind": kind, "cases": count} for (work, kind), count in sorted(counts.items())],
        "trouble": [asdict(each) for each in outcomes if not each.well],
        "descriptors": open_files,
        "shared_memory": left,
    }
    rows = []
    for work in names:
        mine = [each for each in outcomes if each.case.work == work]
        told = figures(mine)
        rows.append([work, *(f"{told[name]:.0f}" for name in _COLUMNS)])
    table(["work", *_COLUMNS], rows)
    for figure, value in record.figures.items():
        print(f"{figure}: {value:.4g}")
    record.write(chosen.json)
    return int(bool(record.figures["cases_with_trouble"] or record.figures["leaks"]))


_COLUMNS = ("cases", "kills", "resumed", "identical", "blocked", "orphans", "leaks")


if __name__ == "__main__":
    sys.exit(main())
