"""Errors that end a command with an exit code of their own."""

from __future__ import annotations


class RunInterruptedError(Exception):
    """A run was interrupted by Ctrl-C; the text says how to resume it."""


class RunFailedError(Exception):
    """A rank failed; the text names the rank, the phase, the cause and how to resume the run."""
