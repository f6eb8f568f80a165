from __future__ import annotations

import pytest
import torch

from strobe.comm.rank_environment import (
    Seat,
    environment_of,
    gpu_of,
    in_ranks,
    rank_from_environment,
    ranks_on_each_gpu,
)
from strobe.errors import OptionError


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GLOO_SOCKET_IFNAME", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_a_process_that_nobody_started_as_a_rank_is_none(bare: pytest.MonkeyPatch) -> None:
    assert not in_ranks()
    assert rank_from_environment() is None
    bare.setenv("RANK", "0")
    assert not in_ranks()


def test_the_environment_of_a_rank_is_read_back(bare: pytest.MonkeyPatch) -> None:
    for name, value in environment_of(Seat(2, 4, 1), 1234, 3).items():
        bare.setenv(name, value)
    assert in_ranks()
    assert rank_from_environment() == Seat(2, 4, 1)


def test_ranks_that_there_is_no_gpu_for_share_those_there_are(bare: pytest.MonkeyPatch) -> None:
    bare.setattr(torch.cuda, "device_count", lambda: 2)
    assert [str(gpu_of(rank)) for rank in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
    for ranks, sharing in ((None, 1), ("1", 1), ("2", 1), ("3", 2), ("5", 3)):
        bare.setenv("LOCAL_WORLD_SIZE", ranks) if ranks else bare.delenv("LOCAL_WORLD_SIZE", raising=False)
        assert ranks_on_each_gpu() == sharing


def test_what_the_user_set_for_gloo_and_openmp_stays(bare: pytest.MonkeyPatch) -> None:
    told = environment_of(Seat(0, 1, 0), 1234, 3)
    assert (told["GLOO_SOCKET_IFNAME"], told["OMP_WAIT_POLICY"], told["OMP_NUM_THREADS"]) == ("lo", "PASSIVE", "3")
    bare.setenv("GLOO_SOCKET_IFNAME", "eth0")
    bare.setenv("OMP_WAIT_POLICY", "ACTIVE")
    told = environment_of(Seat(0, 1, 0), 1234, 3)
    assert (told["GLOO_SOCKET_IFNAME"], told["OMP_WAIT_POLICY"]) == ("eth0", "ACTIVE")


@pytest.mark.parametrize(("rank", "size", "said"), [("x", "2", "RANK='x'"), ("2", "2", "RANK=2 of WORLD_SIZE=2")])
def test_an_environment_that_makes_no_sense_is_refused(
    bare: pytest.MonkeyPatch, rank: str, size: str, said: str
) -> None:
    bare.setenv("RANK", rank)
    bare.setenv("WORLD_SIZE", size)
    with pytest.raises(OptionError, match=said):
        rank_from_environment()
