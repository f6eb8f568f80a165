"""A rank's process as the launcher sees it: start, poll, inspect, end."""

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

from strobe.comm.launch import pipe
from strobe.comm.launch.environment import RankEnvironment, environment_variables
from strobe.comm.launch.failure import ProcessState, failure_from_exit
from strobe.comm.launch.pipe import LauncherPipe

_SAMPLE_EVERY_S = 0.2
_IDLE_WINDOW_S, _BUSY_SHARE = 1.0, 0.05  # gloo's threads use up to 3 % of a core while they wait
_TERMINATE_S = 2.0
_STACK_DUMP_S = 0.5
_LAUNCH_FILES = (
    "strobe/comm/launch/worker.py",
    "strobe/comm/launch/worker_main.py",
    "<frozen runpy>",
)  # outermost frames of every rank


class RankProcess:
    """One rank's process. ``result`` is the pickled result of its work."""

    def __init__(self, rank_env: RankEnvironment, port: int, threads: int, work: int, board: int) -> None:
        self.state = ProcessState(rank_env.rank)
        self.result = b""
        self._sampled_at = 0.0
        self._cpu_before = monotonic(), 0.0
        self._crash_log = os.fdopen(os.memfd_create("strobe-last-words"), "rb")
        launcher_end, rank_end = socket.socketpair()
        self.pipe = LauncherPipe(launcher_end)
        files = (rank_end.fileno(), work, board, self._crash_log.fileno())
        environment = environment_variables(rank_env, port, threads)
        environment["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        command = [sys.executable, "-P", "-m", "strobe.comm.launch.worker_main", str(os.getpid()), *map(str, files)]
        with rank_end, _block_interrupts():
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, pass_fds=files)

    def poll(self) -> list[Any]:
        """Update ``state`` from messages and from the process; return events."""
        status = self.process.poll()  # before reading messages, so that none of an ended process is missed
        events = []
        for kind, body in self.pipe.poll():
            if kind == pipe.EVENT:
                events.append(pickle.loads(body))
            elif kind == pipe.READY:
                self.state.ready_since = monotonic()
            elif kind == pipe.FAILED:
                self.state.failure = pickle.loads(body)
            else:
                self.state.done, self.result = True, body
        if status is not None and self.state.failure is None:
            self.state.failure = failure_from_exit(self.state.rank, status, self.read_crash_log())
        elif status is None and monotonic() - self._sampled_at > _SAMPLE_EVERY_S:
            self._sample_state()
        return events

    def _sample_state(self) -> None:
        self._sampled_at = monotonic()
        stat = _read_proc_stat(self.process.pid)
        if stat is None:
            return
        state, cpu_s = stat
        if state not in ("T", "t"):
            self.state.stopped_since = None
        elif self.state.stopped_since is None:
            self.state.stopped_since = self._sampled_at
        since, before = self._cpu_before
        if self._sampled_at - since > _IDLE_WINDOW_S:
            if cpu_s - before > _BUSY_SHARE * (self._sampled_at - since):
                self.state.idle_since = None
            elif self.state.idle_since is None:
                self.state.idle_since = since
            self._cpu_before = self._sampled_at, cpu_s

    def read_crash_log(self) -> str:
        """Return the Python stack at a crash or at the last ``dump_stack``."""
        text = os.pread(self._crash_log.fileno(), 1 << 16, 0).decode(errors="replace")
        lines = text.partition("\nExtension modules:")[0].splitlines()
        return "\n".join(line for line in lines if not any(file in line for file in _LAUNCH_FILES))

    def dump_stack(self) -> str:
        """Return the current Python stack of a rank that hangs or is stopped."""
        self._send(signal.SIGUSR1, signal.SIGCONT)
        until = monotonic() + _STACK_DUMP_S
        while not self.read_crash_log() and monotonic() < until:
            sleep(0.02)
        sleep(0.02)  # the dump may be incomplete
        return self.read_crash_log()

    def terminate(self) -> None:
        """Send SIGTERM, and SIGCONT without which a stopped process does not receive it."""
        self._send(signal.SIGTERM, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process if it still runs and release its resources."""
        self._send(signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)
        self.pipe.link.close()
        self._crash_log.close()

    def _send(self, *signals: signal.Signals) -> None:
        for number in signals:
            self.process.send_signal(number)  # no effect after the end


def stop_all(ranks: Sequence[RankProcess]) -> None:
    """Terminate all ranks, and kill those that have not ended in time. A second Ctrl-C kills at once."""
    try:
        for rank in ranks:
            rank.terminate()
        wait_for_exit(ranks, _TERMINATE_S)
    finally:
        for rank in ranks:
            rank.kill()


def wait_for_exit(ranks: Sequence[RankProcess], seconds: float) -> None:
    """Wait until all ranks have ended, at most ``seconds``."""
    until = monotonic() + seconds
    while any(rank.process.poll() is None for rank in ranks) and monotonic() < until:
        sleep(0.01)


@contextmanager
def _block_interrupts() -> Iterator[None]:
    """Start processes with SIGINT blocked: Python would print a traceback for each rank on Ctrl-C."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _read_proc_stat(pid: int) -> tuple[str, float] | None:
    """Return the state of a process (a letter) and its processor time in seconds."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return stat[0], (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
