"""Start ranks as processes of this machine, monitor them, and end all of them if one fails."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import connection
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar

import cloudpickle  # type: ignore[import-untyped]
import torch
import torch.distributed as dist

from strobe.comm.launch.environment import Backend, RankEnvironment, check_backend, environment_variables
from strobe.comm.launch.failure import Failure, ProcessState, RankError, diagnose_failure, failure_from_exit
from strobe.comm.launch.pipe import EVENT, FAILED, READY, LauncherPipe
from strobe.comm.launch.status_board import StatusBoard
from strobe.comm.launch.worker import LaunchSpec
from strobe.comm.process_group import DEADLINE_S, ProcessGroupComm
from strobe.errors import OptionError

__all__ = ["RankError", "run_ranks"]

Result = TypeVar("Result")
SendEvent = Callable[[Any], None]

_POLL_S = 0.1
_SAMPLE_EVERY_S = 0.2
_IDLE_WINDOW_S, _BUSY_SHARE = 1.0, 0.05  # gloo's threads use up to 3 % of a core while they wait
_TERMINATE_S = 2.0
_STACK_DUMP_S = 0.5
_LAUNCH_FILES = (
    "strobe/comm/launch/worker.py",
    "strobe/comm/launch/worker_main.py",
    "<frozen runpy>",
)  # outermost frames of every rank


def run_ranks(
    work: Callable[[ProcessGroupComm, SendEvent], Result],
    num_ranks: int,
    *,
    deadline_s: float = DEADLINE_S,
    threads: int | None = None,
    on_event: Callable[[int, Any], None] | None = None,
    device: str = "cpu",
    backend: Backend = "auto",
) -> list[Result]:
    """Run ``work(comm, send_event)`` in new processes, one per rank.

    A rank that fails, or lets another wait beyond the deadline, ends the job and all its processes. A rank that is slow
    while no other rank waits for it is left alone. If this process ends, so do the ranks.

    Args:
        work: a function, also a closure or one of a notebook (pickled by value). ``send_event(event)`` in a rank calls
            ``on_event(rank, event)`` in this process.
        num_ranks: the number of ranks.
        deadline_s: how long a rank waits for a message.
        threads: threads per rank; the cores divided by the ranks by default.
        on_event: called for every event of a rank.
        device: ``cpu`` or ``cuda``. On ``cuda`` rank i uses cuda:i; with fewer GPUs, ranks share them.
        backend: what carries tensors on GPUs.

    Returns:
        The results of all ranks, in order of rank.

    Raises:
        RankError: if a rank fails; names rank, epoch, step, phase and cause.
        OptionError: if an argument is invalid, or the work cannot be pickled.
    """
    _check_options(num_ranks, deadline_s, threads, device)
    check_backend(backend, torch.device(device))
    threads = threads or max(1, len(os.sched_getaffinity(0)) // num_ranks)
    spec = LaunchSpec(
        sys_path=list(sys.path),
        python_path=os.environ.get("PYTHONPATH"),
        threads=threads,
        deadline_s=deadline_s,
        device=device,
        backend=backend,
    )
    with ExitStack() as cleanup:
        ranks: list[RankProcess] = []
        port = cleanup.enter_context(_open_store())
        board = cleanup.enter_context(StatusBoard.create(num_ranks))
        cleanup.callback(stop_all, ranks)
        with _pickle_work(spec, work) as work_fd:
            for rank in range(num_ranks):  # one by one: if a process cannot start, those before are ended
                ranks.append(RankProcess(RankEnvironment(rank, num_ranks, rank), port, threads, work_fd, board.fd))  # noqa: PERF401
        monitor = _Monitor(ranks, board, deadline_s, on_event)
        monitor.wait_until(lambda state: state.ready_since is not None)
        monitor.wait_until(lambda state: state.done)
        wait_for_exit(ranks, deadline_s)
        return [pickle.loads(rank.result) for rank in ranks]


class _Monitor:
    """Waits for all ranks to reach a state, and raises if one fails."""

    def __init__(
        self,
        ranks: list[RankProcess],
        board: StatusBoard,
        deadline_s: float,
        on_event: Callable[[int, Any], None] | None,
    ) -> None:
        self._ranks, self._board, self._deadline_s, self._on_event = ranks, board, deadline_s, on_event

    def wait_until(self, reached: Callable[[ProcessState], bool]) -> None:
        """Wait until all ranks have reached a state, then release them."""
        while not all(reached(rank.state) for rank in self._ranks):
            self._poll()
            states = [rank.state for rank in self._ranks]
            failure = diagnose_failure(states, self._board.read, now=monotonic(), deadline_s=self._deadline_s)
            if failure is not None:
                raise self._make_error(failure)
        for rank in self._ranks:
            rank.pipe.release()

    def _poll(self) -> None:
        links = [rank.pipe.link for rank in self._ranks if rank.pipe.is_open]
        if links:
            connection.wait(links, _POLL_S)
        else:
            sleep(_POLL_S)
        for rank in self._ranks:
            for event in rank.poll():
                if self._on_event is not None:
                    self._on_event(rank.state.rank, event)

    def _make_error(self, failure: Failure) -> RankError:
        """Add the stack of a rank that has not failed by itself, and the messages of ranks that waited for it."""
        culprit = self._ranks[failure.rank]
        position = self._board.read(failure.rank)
        if culprit.state.failure is not None:
            return failure.to_error(position)
        others = [rank.state.failure for rank in self._ranks if rank.state.failure is not None]
        lines = [other.to_error(self._board.read(other.rank)).args[0].partition("\n")[0] for other in others[:8]]
        return failure.to_error(position, "\n".join([*lines, culprit.dump_stack()]))


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
            if kind == EVENT:
                events.append(pickle.loads(body))
            elif kind == READY:
                self.state.ready_since = monotonic()
            elif kind == FAILED:
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


@contextmanager
def _open_store() -> Iterator[int]:
    """Open the TCP store where ranks meet, at a port that is bound before any rank learns it."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = int(listener.getsockname()[1])
    store = dist.TCPStore(  # type: ignore[attr-defined]
        "127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
    )
    try:
        yield port
    finally:
        del store  # a traceback would keep it, and its port


@contextmanager
def _pickle_work(spec: LaunchSpec, work: Callable[[ProcessGroupComm, SendEvent], Any]) -> Iterator[int]:
    """Pickle spec and work into a file in memory, which leaves nothing behind."""
    with os.fdopen(os.memfd_create("strobe-work"), "wb") as file:
        pickle.dump(spec, file)
        try:
            cloudpickle.dump(work, file)
        except Exception as error:
            raise OptionError(
                f"the work for ranks cannot be sent to other processes: {error}. Open files, locks and connections "
                f"inside the work, not outside"
            ) from error
        file.flush()
        yield file.fileno()


def _check_options(num_ranks: int, deadline_s: float, threads: int | None, device: str) -> None:
    if num_ranks < 1:
        raise OptionError(f"a job has at least 1 rank, not {num_ranks}")
    if not deadline_s > 0:
        raise OptionError(f"the deadline must be more than 0 seconds, not {deadline_s:g}")
    if threads is not None and threads < 1:
        raise OptionError(f"a rank uses at least 1 thread, not {threads}")
    if device not in ("cpu", "cuda"):
        raise OptionError(f"ranks run on cpu or cuda, not on {device!r}; on cuda rank i uses cuda:i")
    if device == "cuda" and not torch.cuda.is_available():
        raise OptionError("ranks cannot run on cuda: torch sees no GPU")
