"""Progress of the engine's training, reported as a stage of a protocol."""

from __future__ import annotations

from typing import Any

from strobe.engine.progress import Progress
from strobe.protocols.base import ProtocolRequest


class ReportedEpochs(Progress):
    """Reports every epoch of a run to the request of a protocol.

    Args:
        request: the request.
        stage: name of the stage.
    """

    def __init__(self, request: ProtocolRequest, stage: str) -> None:
        self._request, self._stage, self._epochs = request, stage, 0

    def begin(self, info: dict[str, Any]) -> None:
        self._epochs = info["epochs"]

    def epoch(self, line: dict[str, Any]) -> None:
        self._request.report(self._stage, line["epoch"], self._epochs)
