"""Event files, read by TensorBoard itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strobe.engine.records.run_directory import log_epoch
from strobe.engine.records.tensorboard import EventWriter

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def read(folder: Path) -> Any:
    return accumulator.EventAccumulator(str(folder)).Reload()


def test_tensorboard_forgets_the_epochs_that_a_resumed_run_repeats(tmp_path: Path) -> None:
    for begin, epochs in ((None, (1, 2, 3)), (2, (2, 3, 4))):
        events = EventWriter(tmp_path, begin)
        for epoch in epochs:
            line = {"epoch": epoch, "loss": 10.0 * (begin or 0) + epoch, "validation": {"mse": 0.5}, "ranks": None}
            log_epoch(events, line)
        events.close()
    found = read(tmp_path)
    assert [(event.step, event.value) for event in found.Scalars("loss")] == [(1, 1), (2, 22), (3, 23), (4, 24)]
    assert set(found.Tags()["scalars"]) == {"loss", "validation/mse"}


def test_long_names_many_values_and_large_steps_are_read_as_they_were_written(tmp_path: Path) -> None:
    events = EventWriter(tmp_path)
    scalars = {f"metric {k} {'é' * k}": float("inf") if k == 7 else -1.5 * k for k in range(200)}
    steps = (0, 127, 128, 1 << 40)
    for step in steps:
        events.add_scalars(scalars, step)
    events.close()
    found = read(tmp_path)
    for name, value in scalars.items():
        assert [(event.step, event.value) for event in found.Scalars(name)] == [(step, value) for step in steps]


def test_checksums_are_those_of_tensorboard(tmp_path: Path) -> None:
    loader = pytest.importorskip("tensorboard.compat.tensorflow_stub.pywrap_tensorflow")
    events = EventWriter(tmp_path)
    events.add_scalars({"loss": 0.1}, 3)
    events.close()
    [path] = tmp_path.iterdir()
    data = path.read_bytes()
    masked = loader.masked_crc32c(data[:8])
    assert masked == int.from_bytes(data[8:12], "little")
    damaged = bytearray(data)
    damaged[-8] ^= 1
    path.write_bytes(damaged)
    assert "loss" not in read(tmp_path).Tags()["scalars"]
