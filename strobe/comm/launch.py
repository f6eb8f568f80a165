"""Starts ranks as processes of this machine, hears them, and ends all of them if one fails."""

from __future__ import annotations

import os
import pickle
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import connection
from time import monotonic, sleep
from typing import Any, TypeVar

import cloudpickle  # type: ignore[import-untyped]
import torch
import torch.distributed as dist

from strobe.comm.board import Board
from strobe.comm.group import DEADLINE_S, Group
from strobe.comm.launch_process import RankProcess, end, wait_for_end
from strobe.comm.rank_environment import Seat, in_ranks, rank_from_environment
from strobe.comm.rank_failure import Failure, RankError
from strobe.comm.rank_process import Orders
from strobe.comm.rank_verdict import Fate, verdict
from strobe.errors import OptionError

__all__ = ["RankError", "Seat", "in_ranks", "rank_from_environment", "run_ranks"]

Result = TypeVar("Result")
Tell = Callable[[Any], None]

_LISTEN_S = 0.1


def run_ranks(
    work: Callable[[Group, Tell], Result],
    num_ranks: int,
    *,
    deadline_s: float = DEADLINE_S,
    threads: int | None = None,
    on_event: Callable[[int, Any], None] | None = None,
    device: str = "cpu",
) -> list[Result]:
    """Does ``work(comm, tell)`` in so many new processes, each a rank; gives their results, in order of rank.

    The work may be any function, of a notebook, too: it travels whole. ``tell(event)`` in a rank calls
    ``on_event(rank, event)`` here. Each rank uses ``threads`` threads, without a wish its share of the cores; on
    ``cuda`` rank i uses cuda:i; ranks that there is no GPU for share those there are.

    A rank that fails in any way, or lets another wait for longer than the deadline, ends the job: every process is
    ended, and one ``RankError`` tells rank, epoch, step, phase and cause. If this process ends, so do the ranks. A rank
    that merely takes long, while nobody waits for a message of it, is left alone.
    """
    _check(num_ranks, deadline_s, threads, device)
    threads = threads or max(1, len(os.sched_getaffinity(0)) // num_ranks)
    orders = Orders(
        sys_path=list(sys.path),
        python_path=os.environ.get("PYTHONPATH"),
        threads=threads,
        deadline_s=deadline_s,
        device=device,
    )
    with ExitStack() as left_behind:
        ranks: list[RankProcess] = []
        port = left_behind.enter_context(_meeting_point())
        board = left_behind.enter_context(Board.new(num_ranks))
        left_behind.callback(end, ranks)
        with _packed(orders, work) as packed:
            for rank in range(num_ranks):  # one by one: if the next cannot start, those before are ended
                ranks.append(RankProcess(Seat(rank, num_ranks, rank), port, threads, packed, board.fd))  # noqa: PERF401
        watch = _Watch(ranks, board, deadline_s, on_event)
        watch.until(lambda fate: fate.ready_since is not None)
        watch.until(lambda fate: fate.done)
        wait_for_end(ranks, deadline_s)
        return [pickle.loads(rank.result) for rank in ranks]


class _Watch:
    """Hears all ranks until they have come somewhere, and raises if one does not."""

    def __init__(
        self,
        ranks: list[RankProcess],
        board: Board,
        deadline_s: float,
        on_event: Callable[[int, Any], None] | None,
    ) -> None:
        self._ranks, self._board, self._deadline_s, self._on_event = ranks, board, deadline_s, on_event

    def until(self, reached: Callable[[Fate], bool]) -> None:
        """Waits until all ranks are there, then lets all go on."""
        while not all(reached(rank.fate) for rank in self._ranks):
            self._listen()
            fates = [rank.fate for rank in self._ranks]
            failure = verdict(fates, self._board.read, now=monotonic(), deadline_s=self._deadline_s)
            if failure is not None:
                raise self._error(failure)
        for rank in self._ranks:
            rank.wire.nudge()

    def _listen(self) -> None:
        links = [rank.wire.link for rank in self._ranks if rank.wire.open]
        if links:
            connection.wait(links, _LISTEN_S)
        else:
            sleep(_LISTEN_S)
        for rank in self._ranks:
            for event in rank.hear():
                if self._on_event is not None:
                    self._on_event(rank.fate.rank, event)

    def _error(self, failure: Failure) -> RankError:
        """With what others said of a rank that says nothing itself, and where it is."""
        culprit = self._ranks[failure.rank]
        place = self._board.read(failure.rank)
        if culprit.fate.failure is not None:
            return failure.error(place)
        others = [rank.fate.failure for rank in self._ranks if rank.fate.failure is not None]
        told = [other.error(self._board.read(other.rank)).args[0].partition("\n")[0] for other in others[:8]]
        return failure.error(place, "\n".join([*told, culprit.ask_where()]))


@contextmanager
def _meeting_point() -> Iterator[int]:
    """A store where ranks find each other, at a port of this machine that is ours from before anyone is told."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = int(listener.getsockname()[1])
    store = dist.TCPStore(  # type: ignore[attr-defined]
        "127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
    )
    try:
        yield port
    finally:
        del store  # an error's traceback would keep it, and its port


@contextmanager
def _packed(orders: Orders, work: Callable[[Group, Tell], Any]) -> Iterator[int]:
    """A file in memory with what ranks are told: nothing remains of it, whatever happens."""
    with os.fdopen(os.memfd_create("strobe-work"), "wb") as file:
        pickle.dump(orders, file)
        try:
            cloudpickle.dump(work, file)
        except Exception as error:
            raise OptionError(
                f"the work for ranks cannot be sent to other processes: {error}. Open files, locks and connections "
                f"inside the work, not outside"
            ) from error
        file.flush()
        yield file.fileno()


def _check(num_ranks: int, deadline_s: float, threads: int | None, device: str) -> None:
    if num_ranks < 1:
        raise OptionError(f"a job has at least 1 rank, not {num_ranks}")
    if not deadline_s > 0:
        raise OptionError(f"ranks wait for each other for more than 0 seconds, not {deadline_s:g}")
    if threads is not None and threads < 1:
        raise OptionError(f"a rank uses at least 1 thread, not {threads}")
    if device not in ("cpu", "cuda"):
        raise OptionError(f"ranks run on cpu or cuda, not on {device!r}; on cuda rank i uses cuda:i")
    if device == "cuda" and not torch.cuda.is_available():
        raise OptionError("ranks cannot run on cuda: torch sees no GPU here")
