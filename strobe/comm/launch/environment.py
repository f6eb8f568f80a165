"""The environment variables that make a process a rank, as torchrun sets them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist

from strobe.comm import nccl
from strobe.errors import OptionError, UnknownNameError

Backend = Literal["auto", "nccl", "gloo"]
"""What carries tensors on GPUs: ``auto`` is NCCL if no two ranks share a GPU, else gloo, through host memory."""

BACKENDS: tuple[Backend, ...] = ("auto", "nccl", "gloo")


@dataclass(frozen=True)
class RankEnvironment:
    """The rank of a process, the number of ranks, and its rank on this machine."""

    rank: int
    num_ranks: int
    local_rank: int


def is_launched_rank() -> bool:
    """Whether torchrun or Strobe started this process as a rank."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def rank_from_environment() -> RankEnvironment | None:
    """Read the rank of this process; None if it was not started as one.

    Raises:
        OptionError: if RANK or WORLD_SIZE is not a valid number.
    """
    if not is_launched_rank():
        return None
    rank, num_ranks = _int_variable("RANK"), _int_variable("WORLD_SIZE")
    if not 0 <= rank < num_ranks:
        raise OptionError(f"RANK={rank} is not a rank of WORLD_SIZE={num_ranks}: ranks are 0 to WORLD_SIZE - 1")
    return RankEnvironment(rank, num_ranks, _int_variable("LOCAL_RANK") if "LOCAL_RANK" in os.environ else rank)


def check_backend(backend: str, device: torch.device) -> None:
    """Check that a backend exists, and can carry tensors of a device.

    Raises:
        UnknownNameError: if there is no such backend.
        OptionError: if the backend cannot be used.
    """
    if backend not in BACKENDS:
        raise UnknownNameError("backend", backend, BACKENDS)
    if backend == "nccl" and device.type != "cuda":
        raise OptionError(f"NCCL carries tensors on GPUs, not on {device.type}: use backend gloo, or device cuda")
    if backend == "nccl" and not dist.is_nccl_available():
        raise OptionError("this torch was built without NCCL: use backend gloo")


def use_gpu(rank_env: RankEnvironment, backend: Backend) -> tuple[torch.device, torch.device | None]:
    """Make this process use the GPU of its local rank; with more ranks than GPUs, ranks share GPUs in turn.

    Must be called before the process uses CUDA.

    Returns:
        The GPU, and the GPU again if NCCL should carry its tensors, else None.
    """
    device = torch.device("cuda", rank_env.local_rank % torch.cuda.device_count())
    check_backend(backend, device)
    shares_gpu = max_ranks_per_gpu() > 1
    wants_nccl = backend == "nccl" or (backend == "auto" and dist.is_nccl_available() and not shares_gpu)
    if wants_nccl:
        one_host = os.environ.get("LOCAL_WORLD_SIZE") == str(rank_env.num_ranks)
        nccl.set_environment(rank_env.rank, shares_gpu=shares_gpu, one_host=one_host)
    torch.cuda.set_device(device)
    return device, device if wants_nccl else None


def max_ranks_per_gpu() -> int:
    """Return the largest number of ranks of this machine that share a GPU."""
    return -(-int(os.environ.get("LOCAL_WORLD_SIZE", "1")) // torch.cuda.device_count())


def _int_variable(name: str) -> int:
    try:
        return int(os.environ[name])
    except ValueError:
        raise OptionError(
            f"the environment variable {name}={os.environ[name]!r} is not a whole number; "
            f"unset it to train in one process, or start ranks with torchrun"
        ) from None


def environment_variables(rank_env: RankEnvironment, port: int, threads: int) -> dict[str, str]:
    """Build the environment of a rank's process, all ranks being on this machine and the store at ``port``."""
    return {
        "OMP_WAIT_POLICY": "PASSIVE",
        "GLOO_SOCKET_IFNAME": "lo",
        **os.environ,
        "RANK": str(rank_env.rank),
        "WORLD_SIZE": str(rank_env.num_ranks),
        "LOCAL_RANK": str(rank_env.local_rank),
        "LOCAL_WORLD_SIZE": str(rank_env.num_ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the launcher has the store: rank 0 must not open one
        "TORCHELASTIC_RESTART_COUNT": "0",
        "OMP_NUM_THREADS": str(threads),
    }
