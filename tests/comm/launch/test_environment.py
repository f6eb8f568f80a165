from __future__ import annotations

import pytest
import torch

from strobe.comm.launch.environment import (
    RankEnvironment,
    environment_variables,
    is_launched_rank,
    max_ranks_per_gpu,
    rank_from_environment,
    use_gpu,
)
from strobe.errors import OptionError


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GLOO_SOCKET_IFNAME", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_a_plain_process_has_no_rank(bare: pytest.MonkeyPatch) -> None:
    assert not is_launched_rank()
    assert rank_from_environment() is None
    bare.setenv("RANK", "0")
    assert not is_launched_rank()


def test_the_environment_of_a_rank_is_read_back(bare: pytest.MonkeyPatch) -> None:
    for name, value in environment_variables(RankEnvironment(2, 4, 1), 1234, 3).items():
        bare.setenv(name, value)
    assert is_launched_rank()
    assert rank_from_environment() == RankEnvironment(2, 4, 1)


def test_more_ranks_than_gpus_share_gpus(bare: pytest.MonkeyPatch) -> None:
    bare.setattr(torch.cuda, "device_count", lambda: 2)
    bare.setattr(torch.cuda, "set_device", lambda device: None)
    gpus = [use_gpu(RankEnvironment(rank, 3, rank), "gloo") for rank in range(3)]
    assert [str(gpu) for gpu, _ in gpus] == ["cuda:0", "cuda:1", "cuda:0"]
    assert all(nccl_device is None for _, nccl_device in gpus)
    for ranks, sharing in ((None, 1), ("1", 1), ("2", 1), ("3", 2), ("5", 3)):
        bare.setenv("LOCAL_WORLD_SIZE", ranks) if ranks else bare.delenv("LOCAL_WORLD_SIZE", raising=False)
        assert max_ranks_per_gpu() == sharing


def test_variables_of_gloo_and_openmp_set_by_the_user_are_kept(bare: pytest.MonkeyPatch) -> None:
    variables = environment_variables(RankEnvironment(0, 1, 0), 1234, 3)
    assert (variables["GLOO_SOCKET_IFNAME"], variables["OMP_WAIT_POLICY"], variables["OMP_NUM_THREADS"]) == (
        "lo",
        "PASSIVE",
        "3",
    )
    bare.setenv("GLOO_SOCKET_IFNAME", "eth0")
    bare.setenv("OMP_WAIT_POLICY", "ACTIVE")
    variables = environment_variables(RankEnvironment(0, 1, 0), 1234, 3)
    assert (variables["GLOO_SOCKET_IFNAME"], variables["OMP_WAIT_POLICY"]) == ("eth0", "ACTIVE")


@pytest.mark.parametrize(("rank", "size", "message"), [("x", "2", "RANK='x'"), ("2", "2", "RANK=2 .* WORLD_SIZE=2")])
def test_invalid_variables_are_refused(bare: pytest.MonkeyPatch, rank: str, size: str, message: str) -> None:
    bare.setenv("RANK", rank)
    bare.setenv("WORLD_SIZE", size)
    with pytest.raises(OptionError, match=message):
        rank_from_environment()
