"""Training that has gone wrong."""

from __future__ import annotations

from strobe.engine.settings import Settings
from strobe.errors import StrobeError


class DivergedError(StrobeError):
    """The loss or the weights are no numbers any more."""

    def __init__(self, what: str, epoch: int, settings: Settings) -> None:
        clip = "--clip 1" if not settings.clip else f"a smaller --clip than {settings.clip:g}"
        super().__init__(
            f"{what} in epoch {epoch} is not a finite number: try a lower --lr (it was {settings.lr:g}) or {clip}. "
            "The last checkpoint, if there is one, is from before that."
        )
