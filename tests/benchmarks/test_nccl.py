"""The comparison of ranks with one rank, on threads without a GPU."""

from __future__ import annotations

from functools import partial

import pytest

from benchmarks import nccl_profile
from benchmarks.nccl import TOLERANCES, cases, failures, work_on_rank
from strobe.models import MODELS
from strobe.presets import PRESETS
from tests.support.ranks import threads_for_processes


def test_all_models_are_compared_in_each_precision() -> None:
    found = cases(quick=False)
    assert {(model, precision) for _, model, precision in found} == {
        (model, precision) for model in MODELS for precision in TOLERANCES
    }
    assert {name for name, *_ in found} == set(PRESETS)
    quick = cases(quick=True)
    assert set(quick) < set(found)
    assert {precision for *_, precision in quick} == set(TOLERANCES)


@pytest.mark.usefixtures("ranks_are_threads")
def test_ranks_that_are_threads_do_not_differ_from_one_rank() -> None:
    chosen = [("relay", "tgcn", "float64"), ("hash", "dysat", "float32"), ("dgc", "tgcn", "float64")]
    found = threads_for_processes(partial(work_on_rank, chosen, 2, "cpu"), 2)[0]
    assert [set(result) for result in found["cases"].values()] == [{"loss", "gradients"}] * 3
    assert failures(found) == {}
    assert found["distinct_losses"] == 1


def test_a_difference_above_the_tolerance_of_its_precision_is_a_failure() -> None:
    wrong = {"loss": 0.0, "gradients": 1e-8}
    results = {"hash sage float64": wrong, "hash sage float32": wrong, "pss sage float64": {"refused": "no"}}
    failed = {"pts sage float64": {"failed": "no kernel"}}
    assert failures({"cases": results | failed}) == {"hash sage float64": wrong} | failed


def _event(category: str, name: str, at: float, took: float, **args: int) -> nccl_profile.Event:
    return {"cat": category, "name": name, "ts": at, "dur": took, "args": args}


def test_copies_waits_and_kernels_of_the_profiled_step_are_counted() -> None:
    events: list[nccl_profile.Event] = [
        {"name": "process_name", "ph": "M"},
        _event("user_annotation", nccl_profile.STEP, 100.0, 50.0),
        _event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 110.0, 1.0, bytes=4096),
        _event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 111.0, 1.0, bytes=4097),
        _event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 112.0, 1.0, bytes=9999),
        _event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 90.0, 1.0, bytes=9999),
        _event("cuda_runtime", "cudaStreamSynchronize", 120.0, 1.0),
        _event("cuda_runtime", "cudaLaunchKernel", 121.0, 1.0),
        _event("kernel", "gru_forward", 122.0, 4.0),
        _event("kernel", "ncclDevKernel_SendRecv", 123.0, 40.0),
        _event("cuda_runtime", "cudaDeviceSynchronize", 151.0, 1.0),
    ]
    assert nccl_profile.count_events(events) == {
        "host_copies": 1,
        "host_waits": 1,
        "kernel_s": 4e-6,
        "recurrent_kernels": 1,
    }


def test_figures_are_the_worst_of_models_and_ranks() -> None:
    one, few, many = ({"host_copies": float(k), "host_waits": k + 1.0} for k in range(3))
    profiles = {"tgcn": ([one, few], (2.0, 6.0)), "gcn": ([one, many], (3.0, 6.0))}
    figures = nccl_profile.figures({model: nccl_profile.ModelProfile(*each) for model, each in profiles.items()})
    assert figures == {"host_copies_per_step": 2, "host_waits_per_step": 3, "relay_device_overhead": 3.0}
