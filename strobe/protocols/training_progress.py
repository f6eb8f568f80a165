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
        total: number of epochs, or snapshots of an online run; None for what the run says.
    """

    def __init__(self, request: ProtocolRequest, stage: str, total: int | None = None) -> None:
        self._request, self._stage, self._total = request, stage, total

    def begin(self, info: dict[str, Any]) -> None:
        self._total = info["epochs"] if self._total is None else self._total

    def epoch(self, line: dict[str, Any]) -> None:
        self._request.report(self._stage, line["epoch"], self._total)
