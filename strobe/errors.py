"""Errors that users can cause: one base class, one class per kind."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class StrobeError(Exception):
    """Base of all errors that Strobe raises on purpose; the message says what to do."""


class InputError(StrobeError):
    """A file, table or array cannot be used as it is."""


class BadRowsError(InputError):
    """A table has bad rows; the message names each by file, line, column and reason."""


class FormatError(StrobeError):
    """A saved graph is missing, damaged, or of another format version."""


class OptionError(StrobeError):
    """An option or argument has a value that is not allowed."""


class UnknownNameError(StrobeError):
    """An unknown name; the message suggests the nearest known one.

    Args:
        what: kind of thing that has the name.
        name: the unknown name.
        known: all known names.
    """

    def __init__(self, what: str, name: object, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
        super().__init__(f"no {what} named {name!r}{hint} Known: {shown or 'none'}.")


class DownloadError(StrobeError):
    """A file could not be downloaded, or does not match its announced size or checksum."""


class MissingPackageError(StrobeError):
    """An optional package is not installed."""

    def __init__(self, package: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package!r}: pip install {package}")
