"""How long work tells how far it is: one callback for a single stage, one for several."""

from __future__ import annotations

from collections.abc import Callable

OnProgress = Callable[[int, int | None], None]
"""Called with (done, in all); None while nobody knows how much there is."""

OnStage = Callable[[str, int, int | None], None]
"""Called with (what is being done, done, in all); a new text begins a new stage."""
