"""A rank's process as the one that started it sees it: starts it, hears it, looks after it, ends it."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from strobe.comm import rank_wire
from strobe.comm.rank_environment import Seat, environment_of
from strobe.comm.rank_failure import ended
from strobe.comm.rank_verdict import Fate
from strobe.comm.rank_wire import ParentEnd

_LOOK_S = 0.2
_USED_S, _BUSY_SHARE = 1.0, 0.05  # gloo's threads use up to 3 % of a core while they wait
_END_S = 2.0
_WORDS_S = 0.5
_OURS = ("strobe/comm/rank_process.py", "strobe/comm/launch_rank.py", "<frozen runpy>")  # every rank's first frames


class RankProcess:
    """One rank. ``fate`` is what is known of it; ``result`` what its work gave, still packed."""

    def __init__(self, seat: Seat, port: int, threads: int, work: int, board: int) -> None:
        self.fate = Fate(seat.rank)
        self.result = b""
        self._looked = 0.0
        self._used_before = monotonic(), 0.0
        self._words = os.fdopen(os.memfd_create("strobe-last-words"), "rb")
        ours, theirs = socket.socketpair()
        self.wire = ParentEnd(ours)
        files = (theirs.fileno(), work, board, self._words.fileno())
        environment = environment_of(seat, port, threads)
        environment["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        command = [sys.executable, "-P", "-m", "strobe.comm.launch_rank", str(os.getpid()), *map(str, files)]
        with theirs, _interrupts_held():
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, pass_fds=files)

    def hear(self) -> list[Any]:
        """Takes note of what the rank has said and how it is; gives its events."""
        status = self.process.poll()  # before its last words are heard, so that none is missed
        events = []
        for kind, body in self.wire.heard():
            if kind == rank_wire.EVENT:
                events.append(pickle.loads(body))
            elif kind == rank_wire.READY:
                self.fate.ready_since = monotonic()
            elif kind == rank_wire.FAILED:
                self.fate.failure = pickle.loads(body)
            else:
                self.fate.done, self.result = True, body
        if status is not None and self.fate.failure is None:
            self.fate.failure = ended(self.fate.rank, status, self.last_words())
        elif status is None and monotonic() - self._looked > _LOOK_S:
            self._look()
        return events

    def _look(self) -> None:
        self._looked = monotonic()
        seen = _state(self.process.pid)
        if seen is None:
            return
        state, used = seen
        if state not in ("T", "t"):
            self.fate.stopped_since = None
        elif self.fate.stopped_since is None:
            self.fate.stopped_since = self._looked
        since, before = self._used_before
        if self._looked - since > _USED_S:
            if used - before > _BUSY_SHARE * (self._looked - since):
                self.fate.idle_since = None
            elif self.fate.idle_since is None:
                self.fate.idle_since = since
            self._used_before = self._looked, used

    def last_words(self) -> str:
        """Where Python was when it crashed or was asked."""
        words = os.pread(self._words.fileno(), 1 << 16, 0).decode(errors="replace")
        lines = words.partition("\nExtension modules:")[0].splitlines()
        return "\n".join(line for line in lines if not any(file in line for file in _OURS))

    def ask_where(self) -> str:
        """Where Python is, of a rank that hangs or is stopped."""
        self._send(signal.SIGUSR1, signal.SIGCONT)
        until = monotonic() + _WORDS_S
        while not self.last_words() and monotonic() < until:
            sleep(0.02)
        sleep(0.02)  # it may not have said all yet
        return self.last_words()

    def ask_to_end(self) -> None:
        self._send(signal.SIGTERM, signal.SIGCONT)  # one that is stopped hears the first only after the second

    def kill(self) -> None:
        """Ends it now, if it still runs, and lets go of everything."""
        self._send(signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)
        self.wire.link.close()
        self._words.close()

    def _send(self, *signals: signal.Signals) -> None:
        for number in signals:
            self.process.send_signal(number)  # does nothing if it has ended


def end(ranks: Sequence[RankProcess]) -> None:
    """Ends all that still run: asks first, waits a little, then does not ask. A second Ctrl-C ends the waiting."""
    try:
        for rank in ranks:
            rank.ask_to_end()
        wait_for_end(ranks, _END_S)
    finally:
        for rank in ranks:
            rank.kill()


def wait_for_end(ranks: Sequence[RankProcess], seconds: float) -> None:
    """Until all have ended, or for so long."""
    until = monotonic() + seconds
    while any(rank.process.poll() is None for rank in ranks) and monotonic() < until:
        sleep(0.01)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """A process that starts in here does not see Ctrl-C until it asks to: Python would print a traceback for each."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _state(pid: int) -> tuple[str, float] | None:
    """How the system sees a process: its state (a letter) and the seconds of processor time that it has used."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return stat[0], (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
