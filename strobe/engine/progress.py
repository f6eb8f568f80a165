"""Progress of a run. The base is silent; subclasses show what they want."""

from __future__ import annotations

from typing import Any


class Progress:
    """Called by the engine, in the thread that trains: what is done here delays training."""

    def stage(self, what: str, done: int, total: int | None) -> None:
        """Work before or after training is at ``done`` of ``total``; None while the total is unknown."""

    def begin(self, info: dict[str, Any]) -> None:
        """Training begins: ``epochs``, the ``epoch`` it begins after, ``metric``, ``steps`` an epoch."""

    def step(self, epoch: int, step: int) -> None:
        """A step (counted from 1) of an epoch (counted from 1) is done."""

    def epoch(self, line: dict[str, Any]) -> None:
        """An epoch is done: its line of the record."""

    def from_cache(self, what: str) -> None:
        """A result was read from the cache: ``fit``, ``baselines``, ``partition``, ``memory`` or ``workload``."""

    def note(self, text: str) -> None:
        """Something a user may want to know, in a sentence."""
