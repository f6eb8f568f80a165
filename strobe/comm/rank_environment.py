"""Whether this process is one rank of many, as its environment says; and that environment."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from strobe.errors import OptionError


@dataclass(frozen=True)
class Seat:
    """Which rank a process is, of how many, and which of those on this machine."""

    rank: int
    num_ranks: int
    local_rank: int


def in_ranks() -> bool:
    """Whether torchrun or Strobe started this process as one rank."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def rank_from_environment() -> Seat | None:
    """Which rank this process is, or nothing if nobody started it as one."""
    if not in_ranks():
        return None
    rank, num_ranks = _number("RANK"), _number("WORLD_SIZE")
    if not 0 <= rank < num_ranks:
        raise OptionError(
            f"the environment says RANK={rank} of WORLD_SIZE={num_ranks}; ranks are numbered from 0 to WORLD_SIZE - 1"
        )
    return Seat(rank, num_ranks, _number("LOCAL_RANK") if "LOCAL_RANK" in os.environ else rank)


def gpu_of(local_rank: int) -> torch.device:
    """The GPU of its number on its machine; ranks that there is none for share those there are."""
    return torch.device("cuda", local_rank % torch.cuda.device_count())


def ranks_on_each_gpu() -> int:
    """How many ranks of this machine share a GPU, at most."""
    return -(-int(os.environ.get("LOCAL_WORLD_SIZE", "1")) // torch.cuda.device_count())


def _number(name: str) -> int:
    try:
        return int(os.environ[name])
    except ValueError:
        raise OptionError(
            f"the environment says {name}={os.environ[name]!r}, which is no whole number; "
            f"unset it to train in one process, or start ranks with torchrun"
        ) from None


def environment_of(seat: Seat, port: int, threads: int) -> dict[str, str]:
    """What torchrun would tell this rank, where all are on this machine and a store that all meet at is there."""
    return {
        "OMP_WAIT_POLICY": "PASSIVE",
        "GLOO_SOCKET_IFNAME": "lo",
        **os.environ,
        "RANK": str(seat.rank),
        "WORLD_SIZE": str(seat.num_ranks),
        "LOCAL_RANK": str(seat.local_rank),
        "LOCAL_WORLD_SIZE": str(seat.num_ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store is the parent's: rank 0 must not open one
        "TORCHELASTIC_RESTART_COUNT": "0",
        "OMP_NUM_THREADS": str(threads),
    }
