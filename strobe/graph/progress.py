"""Types of progress callbacks: for one stage, and for several."""

from __future__ import annotations

from collections.abc import Callable

OnProgress = Callable[[int, int | None], None]
"""Called with (done, total); total is None while it is unknown."""

OnStage = Callable[[str, int, int | None], None]
"""Called with (stage, done, total); a new text starts a new stage."""
