"""Checks of the source tree that ``make check`` and pre-commit run."""
