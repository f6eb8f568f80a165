"""The machine a run is on: which device, how many threads, which random numbers, how much memory."""

from __future__ import annotations

import os
import platform
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

from strobe.comm.launch.environment import max_ranks_per_gpu
from strobe.errors import OptionError

_MAX_THREADS = 1024
"""OpenMP ends the process if it cannot start that many threads."""


def choose_device(name: str) -> torch.device:
    """The device of a name; ``auto`` is a GPU where torch sees one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise OptionError(f"a device is auto, cpu, cuda or cuda:0, cuda:1, …, not {name!r}") from None
    if device.type not in ("cpu", "cuda"):
        raise OptionError(f"Strobe trains on cpu or cuda, not on {name!r}")
    if device.type == "cuda":
        _check_cuda(device)
    return device


def _check_cuda(device: torch.device) -> None:
    if not torch.cuda.is_available():
        why = "this torch was built without CUDA" if torch.version.cuda is None else "torch sees no GPU here"
        raise OptionError(f"there is no {device} on this machine ({why}): choose auto or cpu")
    if device.index is not None and device.index >= torch.cuda.device_count():
        raise OptionError(f"there is no {device}: torch sees {torch.cuda.device_count()} GPUs, numbered from 0")


def choose_threads(wanted: int | None) -> int:
    """Tells torch how many threads to use, and says how many those are.

    Without a wish ranks on one machine share the cores this process may run on, which may be fewer than the machine
    has; for a single process OMP_NUM_THREADS goes first (torchrun sets it to 1 for all its processes).
    """
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if wanted is None and (ranks_here > 1 or "OMP_NUM_THREADS" not in os.environ):
        wanted = max(1, len(os.sched_getaffinity(0)) // ranks_here)
    if wanted is not None and wanted > _MAX_THREADS:
        raise OptionError(f"threads must be at most {_MAX_THREADS:,}, not {wanted:,}")
    if wanted is not None:
        torch.set_num_threads(wanted)
    return torch.get_num_threads()


def choose_arithmetic(device: torch.device, *, tf32: bool, deterministic: bool) -> None:
    """Tells torch how exactly a GPU multiplies float32 matrices, and to give the same bits in every run, if it must:
    what cannot be raises an error, here and in whatever else this process does with torch."""
    torch.set_float32_matmul_precision("high" if tf32 and device.type == "cuda" else "highest")
    if deterministic:
        os.environ.setdefault(
            "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
        )  # what torch asks for; read when a GPU is first used
        torch.use_deterministic_algorithms(True)


def seed_all(seed: int) -> None:
    """Seed torch (all devices), numpy and Python."""
    torch.manual_seed(seed)
    # Old-style numbers: a model of the user's may draw from the global generator.
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)


def random_state() -> dict[str, Any]:
    """Where all random numbers stand, as tensors and plain values that a checkpoint can hold."""
    kind, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "numpy": (kind, torch.from_numpy(np.asarray(keys, np.int64)), *rest),
        "python": random.getstate(),
    }


def restore_random_state(state: dict[str, Any]) -> None:
    """Goes on drawing where ``random_state`` stood. GPUs that are not here any more are left out."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        for device, where in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(where, device)
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))


def peak_bytes(device: torch.device) -> dict[str, int]:
    """Peak memory of this process, and of its tensors on the GPU."""
    # Not getrusage: a process begins there with what its parent held when it started it.
    peak = {"memory_bytes": _proc_bytes("/proc/self/status", "VmHWM:")}
    if device.type == "cuda":
        peak["device_bytes"] = torch.cuda.max_memory_allocated(device)
    return peak


def free_bytes(device: torch.device) -> int:
    """What a rank may take: its part of what its GPU has free, or of what this machine has."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) // max_ranks_per_gpu()
    return _proc_bytes("/proc/meminfo", "MemAvailable:") // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _proc_bytes(path: str, field: str) -> int:
    """A field of a file of Linux, which counts in KiB."""
    return int(Path(path).read_text().split(field)[1].split()[0]) * 1024


@contextmanager
def kill_on_second_interrupt() -> Iterator[None]:
    """While a run is saved or cleared up after the first Ctrl-C, the second is not waited for.

    A program that handles the signal itself is left alone, and so are threads, which get no signals.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def first(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def processor_name() -> str:
    """The name of the processor, or its architecture."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
