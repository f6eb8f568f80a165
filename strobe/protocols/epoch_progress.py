"""Progress of trainings inside a protocol."""

from __future__ import annotations

from typing import Any

from strobe.engine.progress import Progress
from strobe.protocols.base import ProtocolRequest


class EpochProgress(Progress):
    """Reports the epochs of a training as a stage of the protocol.

    Args:
        request: who is told.
        stage: name of the stage.
        epochs: most epochs.
    """

    def __init__(self, request: ProtocolRequest, stage: str, epochs: int) -> None:
        self._request, self._stage, self._epochs = request, stage, epochs

    def epoch(self, line: dict[str, Any]) -> None:
        self._request.report(self._stage, line["epoch"], self._epochs)
