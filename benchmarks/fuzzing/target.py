"""The contract of a fuzz target: one random input, handed to Strobe and to an independent oracle."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar


class SilentDifferenceError(Exception):
    """Strobe accepted an input and its result differs from the oracle's; the message says how."""


class FuzzTarget(ABC):
    """A part of Strobe that reads what users give it.

    One instance lives in each worker process and runs many inputs, one after another. ``folder`` is empty before each
    input and emptied after it; ``setup`` may keep files in ``cache``, which is not.
    """

    name: ClassVar[str]
    inputs: ClassVar[int]
    """How many inputs a full campaign runs."""

    def setup(self, cache: Path) -> None:
        """Prepare what all inputs share (a valid graph to damage, a trained run): once per process."""
        del cache

    @abstractmethod
    def run(self, rng: random.Random, folder: Path) -> str:
        """Make one input from ``rng``, hand it to Strobe, and compare.

        Returns:
            The outcome, a word that the record counts: ``accepted``, ``refused``, or one more precise.

        Raises:
            SilentDifferenceError: Strobe's result differs from the oracle's.
            Exception: any other exception that is not ``StrobeError`` counts as foreign.
        """
