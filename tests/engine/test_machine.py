from __future__ import annotations

import os
import random

import numpy as np
import pytest
import torch

from strobe.engine import machine
from strobe.errors import OptionError


@pytest.fixture(autouse=True)
def all_is_put_back() -> object:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
    torch.use_deterministic_algorithms(False)


def test_auto_is_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for here in (False, True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda here=here: here)
        assert machine.choose_device("auto").type == ("cuda" if here else "cpu")


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(OptionError, match="there is no cuda on this machine"):
        machine.choose_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(OptionError, match="there is no cuda:2: torch sees 2 GPUs"):
        machine.choose_device("cuda:2")


@pytest.mark.parametrize("name", ["gpu", "", "mps"])
def test_what_is_no_device_is_refused(name: str) -> None:
    with pytest.raises(OptionError):
        machine.choose_device(name)


def test_threads_are_those_wanted_then_those_of_the_environment_then_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert machine.choose_threads(1) == 1 == torch.get_num_threads()
    torch.set_num_threads(3)  # as torch does with this variable when it starts
    assert machine.choose_threads(None) == 3
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 5})
    assert machine.choose_threads(None) == 2


def test_ranks_that_share_a_gpu_share_what_it_has_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (900, 1000))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert machine.free_bytes(torch.device("cuda")) == 300


def test_only_a_gpu_rounds_in_products_and_only_if_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", told.append)
    for device in ("cpu", "cuda"):
        for tf32 in (False, True):
            machine.choose_arithmetic(torch.device(device), tf32=tf32, deterministic=False)
    assert told == ["highest", "highest", "highest", "high"]


def test_determinism_is_switched_on_and_never_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    for wanted in (False, True, False):
        machine.choose_arithmetic(torch.device("cpu"), tf32=False, deterministic=wanted)
        assert torch.are_deterministic_algorithms_enabled() == ("CUBLAS_WORKSPACE_CONFIG" in os.environ)
    assert torch.are_deterministic_algorithms_enabled()


def draws() -> tuple[float, float, float]:
    return float(torch.rand(())), float(np.random.rand()), random.random()  # noqa: NPY002


def test_a_seed_seeds_all_generators() -> None:
    machine.seed_all(5)
    first = draws()
    machine.seed_all(5)
    assert draws() == first
    machine.seed_all(6)
    assert not set(draws()) & set(first)


def test_random_numbers_go_on_where_they_stood() -> None:
    machine.seed_all(1)
    draws()
    state = machine.random_state()
    expected = draws()
    machine.seed_all(2)
    machine.restore_random_state(state)
    assert draws() == expected


def test_peak_memory_grows_with_what_is_held() -> None:
    before = machine.peak_bytes(torch.device("cpu"))["memory_bytes"]
    held = torch.ones(before // 4 + 8_000_000)
    assert machine.peak_bytes(torch.device("cpu"))["memory_bytes"] > before
    assert held.numel() > 0


def test_more_threads_than_can_be_started_are_refused() -> None:
    with pytest.raises(OptionError, match="threads must be at most"):
        machine.choose_threads(10**6)
