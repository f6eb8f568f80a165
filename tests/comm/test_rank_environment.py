from __future__ import annotations

import pytest

from strobe.comm.rank_environment import Seat, environment_of, in_ranks, rank_from_environment
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
