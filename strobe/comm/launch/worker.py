"""A rank's process: load the work, join the process group, run it, and report the result to the launcher."""

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

from strobe.comm.launch.environment import Backend, RankEnvironment, rank_from_environment, use_gpu
from strobe.comm.launch.failure import failure_from_error
from strobe.comm.launch.pipe import DONE, EVENT, FAILED, READY, RankPipe
from strobe.comm.launch.status_board import RankStatus, StatusBoard
from strobe.comm.process_group import ProcessGroupComm, join
from strobe.errors import OptionError

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, kw_only=True)
class LaunchSpec:
    """Settings that a rank needs before its work can be unpickled."""

    sys_path: list[str]
    python_path: str | None
    threads: int
    deadline_s: float
    device: str
    backend: Backend


def main(arguments: list[str]) -> None:
    """Run one rank.

    Args:
        arguments: the parent's process id and four file descriptors: pipe, work, status board, crash log.
    """
    parent, *files = map(int, arguments)
    _exit_with_parent(parent)
    for file in files:
        os.set_inheritable(file, False)  # not for processes that the work starts
    pipe, work, board, crash_log = files
    _prepare_signals(crash_log)
    rank_env = rank_from_environment()
    assert rank_env is not None
    status = RankStatus(StatusBoard(board, rank_env.num_ranks), rank_env.rank)
    _run_rank(rank_env, work, status, RankPipe(socket.socket(fileno=pipe)))


def _exit_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends. It may have ended already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _prepare_signals(crash_log: int) -> None:
    """Ignore Ctrl-C, which the launcher handles, and dump the stack to the crash log on a crash or SIGUSR1."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked by the launcher while Python started
    faulthandler.enable(crash_log)
    faulthandler.register(signal.SIGUSR1, crash_log)


def _run_rank(rank_env: RankEnvironment, work: int, status: RankStatus, pipe: RankPipe) -> None:
    try:
        comm, result = _run_work(rank_env, work, status, pipe)
        payload = _pickle_result(result)
        status.set_phase("done")
        pipe.send(DONE, payload)
    except BaseException as error:
        _strip_launch_frames(error)
        pipe.send(FAILED, pickle.dumps(failure_from_error(rank_env.rank, error, status.position_at(error))))
        _exit_now(1)
    if not pipe.wait():  # until all are done: closing a connection early can lose the last messages of others
        _exit_now(1)
    if dist.is_initialized():
        comm.close()
    atexit._run_exitfuncs()
    _exit_now(0)


def _run_work(rank_env: RankEnvironment, file: int, status: RankStatus, pipe: RankPipe) -> tuple[ProcessGroupComm, Any]:
    work, spec = _load_work(file)
    nccl_device = use_gpu(rank_env, spec.backend)[1] if spec.device == "cuda" else None
    torch.set_num_threads(spec.threads)
    pipe.send(READY)
    if not pipe.wait():  # until all have started: deadlines must not run before
        _exit_now(1)
    status.set_phase("joining")
    comm = join(spec.deadline_s, nccl_device=nccl_device)
    comm.ledger.on_change = status.write
    status.write(comm.ledger.epoch_now, comm.ledger.step_now, comm.ledger.phase_now)
    result = work(comm, lambda event: pipe.send(EVENT, cloudpickle.dumps(event)))
    comm.wait_sends()
    return comm, result


def _load_work(file: int) -> tuple[Callable[[ProcessGroupComm, Callable[[Any], None]], Any], LaunchSpec]:
    """Unpickle the spec, then the work, whose modules are on the caller's path."""
    with mmap.mmap(file, 0, access=mmap.ACCESS_READ) as pickles:
        spec: LaunchSpec = pickle.load(pickles)
        sys.path[:] = spec.sys_path
        os.environ.pop("PYTHONPATH", None)
        if spec.python_path is not None:
            os.environ["PYTHONPATH"] = spec.python_path
        work = pickle.load(pickles)
    os.close(file)
    return work, spec


def _pickle_result(result: Any) -> bytes:
    try:
        payload: bytes = cloudpickle.dumps(result)
        return payload
    except Exception as error:
        raise OptionError(f"the result of a rank's work, {type(result).__name__}, is not picklable: {error}") from error


def _strip_launch_frames(error: BaseException) -> None:
    """Let the traceback begin with the work, not with this file."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename == __file__:
        frame = frame.tb_next
    if frame is not None:
        error.__traceback__ = frame


def _exit_now(status: int) -> NoReturn:
    """Exit without cleanup: a failed process group would block, and torch's teardown takes a second."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(status)
