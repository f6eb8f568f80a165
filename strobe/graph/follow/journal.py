"""What following must know to go on after it was killed, written before the snapshots that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from strobe.errors import FormatError
from strobe.graph.follow.base import Counts
from strobe.graph.follow.feed import Position
from strobe.graph.follow.waiting import Segment
from strobe.graph.ingest.columns import Ids, TimeUnit
from strobe.io.sealed import read_sealed, write_sealed

_VERSION = 2


@dataclass(frozen=True, kw_only=True)
class Entry:
    """How far the source has been read, what its columns were taken for, where cutting stands, and which rows wait."""

    position: Position = field(default_factory=dict)
    ids: Ids | None = None
    time_unit: TimeUnit | None = None
    counts: Counts = field(default_factory=Counts)
    cutting: Mapping[str, Any] | None = None
    segments: tuple[Segment, ...] = ()


class Journal:
    """The last entry, in a file that is replaced at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / "journal.json"

    def read(self) -> Entry | None:
        """The entry that was written last; None where there is none."""
        if not self._path.exists():
            return None
        try:
            kept = read_sealed(self._path, "start the run again (--overwrite)")
            if kept.pop("version") != _VERSION:
                raise FormatError(f"{self._path} was written by another version")
            counts, segments = Counts(**kept.pop("counts")), [Segment(**segment) for segment in kept.pop("segments")]
            return Entry(counts=counts, segments=tuple(segments), **kept)
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{self._path} is damaged: {error}") from error

    def write(self, entry: Entry) -> None:
        write_sealed(self._path, {"version": _VERSION, **asdict(entry)})
