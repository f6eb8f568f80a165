"""One case of the campaign: a work that is disturbed, run again, and compared with one that was not."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

from benchmarks.killing.disturb import Calls, Disturbance
from benchmarks.killing.processes import PARENT, forked, orphans, ranks_of, wait
from benchmarks.killing.works import WORKS, Work
from strobe.errors import StrobeError

HANG_S = 120.0
"""A run of a case that takes longer is ended: it hangs."""

_BELONG = {".follow"}  # where a source has been read up to
_OF_TORCH = "torchinductor_*"  # a cache that torch makes when it is imported

_MEMORY = ("memory", "can't start new thread", "bad_alloc")


@dataclass(frozen=True)
class Undisturbed:
    """What a work comes to, how many file-system calls it makes, how many with writes to file objects, and how long it
    takes."""

    result: str
    calls: int
    calls_and_writes: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Case:
    """A work, and how it is disturbed: from inside, or killed from outside after ``after_s`` seconds.

    ``victim``: who is killed from outside, the first process or a rank of those it starts. ``then``: how the run that
    goes on is disturbed itself.
    """

    work: str
    kind: str
    inside: Disturbance = field(default_factory=Disturbance)
    then: Disturbance | None = None
    after_s: float | None = None
    victim: int = PARENT


@dataclass
class Outcome:
    """What came of a case. ``kills``: how many struck before the work had ended by itself."""

    case: Case
    kills: int = 0
    resumed: bool = False
    identical: bool = False
    orphans: int = 0
    leaks: int = 0
    trouble: str = ""

    @property
    def well(self) -> bool:
        return self.resumed and self.identical and not (self.orphans or self.leaks or self.trouble)


def undisturbed(work: Work, given: Path, folder: Path, *, check: bool = True) -> Undisturbed:
    """Run a work to its end in a child that counts its calls; with ``check`` once more: both must come to the same."""
    folder.mkdir(parents=True)
    told = folder / "calls"

    def count() -> None:
        calls = _begin(folder, Disturbance(writes=True))
        work.begin(given, folder / "counted")
        number, writes = calls.number, calls.writes
        told.write_text(f"{number - writes} {number}")

    began = monotonic()
    assert wait(forked(count, folder / "log"), HANG_S) == 0, (folder / "log").read_text()
    result, seconds = work.result(folder / "counted"), monotonic() - began
    if check:
        began = monotonic()
        child = forked(lambda: work.begin(given, _scratch(folder) / "out"), folder / "log")
        assert wait(child, HANG_S) == 0, (folder / "log").read_text()
        assert work.result(folder / "out") == result, f"{work.name} gives two different results"
        seconds = monotonic() - began
    number, with_writes = map(int, told.read_text().split())
    shutil.rmtree(folder)
    return Undisturbed(result, number, with_writes, seconds)


def run_case(case: Case, wanted: Undisturbed, given: Path, folder: Path) -> Outcome:
    """Disturb a work, run it again, and look at what it came to and what is left behind. ``folder`` is made, and
    removed where all is well."""
    work, outcome = WORKS[case.work], Outcome(case)
    folder.mkdir(parents=True)
    out, log = folder / "out", folder / "log"
    steps: list[tuple[Disturbance, Callable[[], None]]] = [(case.inside, lambda: work.begin(given, out))]
    if case.then is not None:
        steps.append((case.then, lambda: work.again(given, out)))
    for number, (how, run) in enumerate(steps):
        child = forked(lambda how=how, run=run: (_begin(folder, how), run()), log)  # type: ignore[misc]
        if number == 0 and case.after_s is not None:
            _strike(child, case)
        status = wait(child, HANG_S)
        outcome.orphans += orphans(child)
        outcome.kills += _noted(outcome, how, status, log)
    log.write_text("")
    status = wait(forked(lambda: work.again(given, _scratch(folder) / out.name), log), HANG_S)
    outcome.resumed = status == 0
    if outcome.resumed:
        outcome.identical = work.result(out) == wanted.result
        left = _left_behind(folder, out)
        outcome.leaks = len(left)
        outcome.trouble = outcome.trouble or (f"left behind: {left}" if left else "")
    else:
        outcome.trouble = f"run again: {'it hangs' if status is None else f'status {status}'}\n{_tail(log)}"
    if outcome.well:
        shutil.rmtree(folder)
    return outcome


def leaked_descriptors(work: Work, given: Path, folder: Path, how: Disturbance) -> int:
    """How many descriptors more a process has open after running a work twice more, each time disturbed as is said."""
    folder.mkdir(parents=True)
    told = folder / "descriptors"

    def run() -> None:
        _begin(folder, how)
        counts = []
        for number in range(3):
            with suppress(StrobeError):
                work.begin(given, folder / f"out-{number}")
            gc.collect()
            counts.append(sum(1 for _ in Path("/proc/self/fd").iterdir()))
        told.write_text(str(counts[2] - counts[0]))

    child = forked(run, folder / "log")
    assert wait(child, HANG_S) == 0, _tail(folder / "log")
    found = int(told.read_text()) + orphans(child)
    shutil.rmtree(folder)
    return max(found, 0)


def _begin(folder: Path, how: Disturbance) -> Calls:
    _scratch(folder)
    return how.install()


def _scratch(folder: Path) -> Path:
    """The folder of a case: temporary files go there, too, where they are counted."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    os.environ |= {"TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"}
    return folder


def _strike(child: int, case: Case) -> None:
    """Kill the victim, unless it has ended before."""
    assert case.after_s is not None
    until = monotonic() + case.after_s
    ranks: dict[int, int] = {}
    while case.victim != PARENT and case.victim not in ranks and not _ended(child):
        sleep(0.01)
        ranks = ranks_of(child)
        until = monotonic() + case.after_s  # from the moment it is there
    while monotonic() < until and not _ended(child):
        sleep(0.002)
    victim = child if case.victim == PARENT else ranks.get(case.victim)
    if victim is not None:
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:  # it has ended
            return


def _ended(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _noted(outcome: Outcome, how: Disturbance, status: int | None, log: Path) -> int:
    """Take note of how a disturbed run ended. Returns how many kills struck."""
    case, said = outcome.case, _tail(log)
    killed = status == -signal.SIGKILL or (status == 1 and "was killed (signal 9)" in log.read_text())
    if status is None:
        outcome.trouble = f"it hangs\n{said}"
    elif killed:
        return 1
    elif how.memory_mib is not None and status == 1:
        if not any(word in said.lower() for word in _MEMORY):
            outcome.trouble = f"memory was short, and it said\n{said}"
    elif status != 0:
        outcome.trouble = f"{case.kind}: status {status}\n{said}"
    return 0


def _left_behind(folder: Path, out: Path) -> list[str]:
    """Temporary files, and hidden ones beside and in what was written."""
    hidden = [path for path in folder.rglob(".*") if path.name not in _BELONG]
    temporary = [path for path in (folder / "tmp").iterdir() if not path.match(_OF_TORCH)]
    known = {"log", "tmp", out.name, f"{out.name}.csv"}
    others = [path for path in folder.iterdir() if path.name not in known and path not in hidden]
    return [str(path.relative_to(folder)) for path in (*hidden, *temporary, *others)]


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-12:])
