"""TensorBoard events of a run, where the package is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

EVENTS = "events.out.tfevents.*"
"""The names of the files, which TensorBoard looks for itself."""


class Events:
    """Scalars by epoch: loss, validation metrics, seconds, memory. ``missing`` says why there will be none."""

    def __init__(self, folder: Path, epoch: int) -> None:
        self.missing: str | None = None
        self._writer: Any = None
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            self.missing = "no TensorBoard events are written: pip install tensorboard"
            return
        # Events of epochs that a resumed run repeats are to be forgotten.
        self._writer = SummaryWriter(str(folder), purge_step=epoch + 1 if epoch else None, max_queue=1000)

    def add(self, line: dict[str, Any]) -> None:
        if self._writer is None:
            return
        for name, value in line.items():
            if name == "validation":
                for metric, score in value.items():
                    self._writer.add_scalar(f"validation/{metric}", score, line["epoch"])
            elif name != "epoch" and isinstance(value, int | float):
                self._writer.add_scalar(name, value, line["epoch"])

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
