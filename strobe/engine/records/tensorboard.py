"""TensorBoard events of a run, if tensorboard is installed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

EVENT_FILES = "events.out.tfevents.*"
"""Glob of the file names that TensorBoard searches for."""

_VERSION = "brain.Event:2"


class TensorBoardLogger:
    """Logs scalars per epoch: loss, validation metrics, seconds, memory. ``missing`` is the reason if it cannot.

    Writes are unbuffered: a viewer sees an epoch at once, and a full disk raises in ``log_epoch``.
    """

    def __init__(self, folder: Path, epoch: int) -> None:
        self.missing: str | None = None
        self._file: Any = None
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.record_writer import RecordWriter
        except ImportError:
            self.missing = "no TensorBoard events are written: pip install tensorboard"
            return
        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._file = (folder / EVENT_FILES.replace("*", f"{time.time_ns()}.{os.getpid()}")).open("ab", buffering=0)
        self._writer = RecordWriter(self._file)
        self._write(file_version=_VERSION)
        if epoch:  # discard events of epochs that a resumed run repeats
            self._write(step=epoch + 1, file_version=_VERSION)
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._write(step=epoch + 1, session_log=start)

    def log_epoch(self, line: dict[str, Any]) -> None:
        if self._file is None:
            return
        scalars = {name: value for name, value in line.items() if name != "epoch" and isinstance(value, int | float)}
        scalars |= {f"validation/{metric}": score for metric, score in line.get("validation", {}).items()}
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in scalars.items()]
        self._write(step=line["epoch"], summary=self._summary(value=values))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, **fields: Any) -> None:
        self._writer.write(self._event(wall_time=time.time(), **fields).SerializeToString())
