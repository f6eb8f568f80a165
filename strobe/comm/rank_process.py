"""The life of a rank's process: gets its work, joins the others, does it, and says how it went."""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import mmap
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import cloudpickle  # type: ignore[import-untyped]
import torch
import torch.distributed as dist

from strobe.comm.base import CommError
from strobe.comm.board import Board, Whereabouts
from strobe.comm.group import Group, join
from strobe.comm.rank_environment import Seat, gpu_of, rank_from_environment
from strobe.comm.rank_failure import raised
from strobe.comm.rank_wire import DONE, EVENT, FAILED, READY, RankEnd
from strobe.errors import OptionError

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What a rank must know before its work can be read."""

    sys_path: list[str]
    python_path: str | None
    threads: int
    deadline_s: float
    device: str


def main(arguments: list[str]) -> None:
    """One rank, from its first breath to its last: numbers of the parent process and of four open files."""
    parent, *files = map(int, arguments)
    _die_with(parent)
    for file in files:
        os.set_inheritable(file, False)  # for processes that the work starts
    wire, work, board, words = files
    _prepare_signals(words)
    seat = rank_from_environment()
    assert seat is not None
    where = Whereabouts(Board(board, seat.num_ranks), seat.rank)
    _live(seat, work, where, RankEnd(socket.socket(fileno=wire)))


def _die_with(parent: int) -> None:
    """The system ends this process when its parent ends, however that happens. It may already have."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _prepare_signals(words: int) -> None:
    """Ctrl-C is the parent's. What crashes, or is asked from outside, tells the file ``words`` where it was."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # the parent held it back while Python started
    faulthandler.enable(words)
    faulthandler.register(signal.SIGUSR1, words)


def _live(seat: Seat, work: int, where: Whereabouts, wire: RankEnd) -> None:
    try:
        comm, result = _work(seat, work, where, wire)
        packed = _packed(result)
        where.move("done")
        wire.say(DONE, packed)
    except BaseException as error:
        _strip(error)
        wire.say(FAILED, pickle.dumps(raised(seat.rank, error, where.of(error))))
        _leave(1)
    if not wire.wait():  # until all are done: a link that closes early can take others' last messages with it
        _leave(1)
    if dist.is_initialized():
        comm.close()
    atexit._run_exitfuncs()
    _leave(0)


def _work(seat: Seat, file: int, where: Whereabouts, wire: RankEnd) -> tuple[Group, Any]:
    work, orders = _read(file)
    if orders.device == "cuda":
        torch.cuda.set_device(gpu_of(seat.local_rank))
    torch.set_num_threads(orders.threads)
    wire.say(READY)
    if not wire.wait():  # until all are there: nobody's deadline runs while others still start
        _leave(1)
    where.move("joining")
    comm = _join(orders.deadline_s)
    comm.ledger.watch = where.write
    where.write(comm.ledger.epoch_now, comm.ledger.step_now, comm.ledger.phase_now)
    result = work(comm, lambda event: wire.say(EVENT, cloudpickle.dumps(event)))
    comm.settle()
    return comm, result


def _read(file: int) -> tuple[Callable[[Group, Callable[[Any], None]], Any], Orders]:
    """The work is read last: what it is made of is found on the caller's path."""
    with mmap.mmap(file, 0, access=mmap.ACCESS_READ) as pickles:
        orders: Orders = pickle.load(pickles)
        sys.path[:] = orders.sys_path
        os.environ.pop("PYTHONPATH", None)
        if orders.python_path is not None:
            os.environ["PYTHONPATH"] = orders.python_path
        work = pickle.load(pickles)
    os.close(file)
    return work, orders


def _join(deadline_s: float) -> Group:
    try:
        return join(deadline_s)
    except RuntimeError as error:
        raise CommError(f"it could not join the others: {str(error).splitlines()[0]}") from error


def _packed(result: Any) -> bytes:
    try:
        packed: bytes = cloudpickle.dumps(result)
        return packed
    except Exception as error:
        raise OptionError(
            f"what a rank's work gives must be picklable, and {type(result).__name__} is not: {error}"
        ) from error


def _strip(error: BaseException) -> None:
    """The traceback begins with the work, not with this file."""
    at = error.__traceback__
    while at is not None and at.tb_frame.f_code.co_filename == __file__:
        at = at.tb_next
    if at is not None:
        error.__traceback__ = at


def _leave(status: int) -> NoReturn:
    """At once: a group that failed would wait for messages that never come, and taking torch down takes a second."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(status)
