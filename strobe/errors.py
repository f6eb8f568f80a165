"""Everything that can go wrong by a user's choice: one base class, one class per kind."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class StrobeError(Exception):
    """The base of every error Strobe raises on purpose; its text says what to do."""


class InputError(StrobeError):
    """Data that was given (a file, a table, an array) cannot be used as it is."""


class BadRowsError(InputError):
    """Rows of a table are bad; the text names each by file, line, column and reason."""


class FormatError(StrobeError):
    """A saved graph is missing, damaged, or of a version this program cannot read."""


class OptionError(StrobeError):
    """An option or argument has a value that is not allowed."""


class UnknownNameError(StrobeError):
    """A name that stands for nothing; the text offers the nearest one."""

    def __init__(self, what: str, given: object, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(str(given), names, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
        super().__init__(f"no {what} named {given!r}{hint} Known: {shown or 'none'}.")


class DownloadError(StrobeError):
    """A file could not be fetched, or what arrived is not what was announced."""


class MissingPackageError(StrobeError):
    """A package that only some commands need is not installed."""

    def __init__(self, package: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package!r}: pip install {package}")
