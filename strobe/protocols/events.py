"""Streams of events between sources and destinations, split by time quantiles, read in batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv

from strobe.errors import InputError, OptionError
from strobe.graph.datasets import data_dir as find_data_dir
from strobe.graph.datasets import find
from strobe.graph.datasets.catalog import EventTable
from strobe.graph.datasets.folder import fetch, open_text
from strobe.graph.progress import OnStage

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class EventStream:
    """Events in order of time, split into training, validation and test parts, each read in batches.

    Attributes:
        src, dst, time: of each event, [E]. Sources and destinations are numbered from 0, each on their own.
        num_src, num_dst: numbers of sources and destinations; every destination is a candidate.
        train_end, validation_end: where the validation and the test part begin.
        batch_size: events per batch; the last batch of a part may be smaller. A batch is scored from the batches
            before it.
    """

    src: Ids
    dst: Ids
    time: Floats
    num_src: int
    num_dst: int
    train_end: int
    validation_end: int
    batch_size: int

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise OptionError(f"batch_size must be at least 1, not {self.batch_size}")
        if len(self.time) and np.any(np.diff(self.time) < 0):
            late = int(np.flatnonzero(np.diff(self.time) < 0)[0]) + 1
            raise InputError(f"events must be in order of time: event {late} is before event {late - 1}")

    def __len__(self) -> int:
        return len(self.src)

    @property
    def parts(self) -> dict[str, tuple[int, int]]:
        """First and one past the last event of each part."""
        return {
            "train": (0, self.train_end),
            "validation": (self.train_end, self.validation_end),
            "test": (self.validation_end, len(self)),
        }

    @cached_property
    def batch_ptr(self) -> Ids:
        """Where batches begin, [batches + 1]; no batch crosses the border of a part."""
        starts = [np.arange(first, end, self.batch_size) for first, end in self.parts.values()]
        return np.concatenate([*starts, [len(self)]]).astype(np.int64)

    def batches(self, part: str) -> Iterator[tuple[int, int]]:
        """Yield the first and one past the last event of each batch of a part."""
        first, end = self.parts[part]
        for start in range(first, end, self.batch_size):
            yield start, min(start + self.batch_size, end)

    @cached_property
    def batch_duration(self) -> float:
        """Mean time between batches of the training part: the unit of times that does not depend on the data set."""
        if self.train_end < 2:
            return 1.0
        span = float(self.time[self.train_end - 1] - self.time[0])
        return span * self.batch_size / self.train_end or 1.0

    @cached_property
    def pairs(self) -> PairIndex:
        """Distinct pairs of the stream."""
        keys, slot = np.unique(self.src * self.num_dst + self.dst, return_inverse=True)
        ptr = np.searchsorted(keys // self.num_dst, np.arange(self.num_src + 1))
        return PairIndex(slot=slot.astype(np.int64), src_ptr=ptr.astype(np.int64), dst=keys % self.num_dst)

    @cached_property
    def conflicts(self) -> tuple[Ids, Ids]:
        """Other destinations that the source of an event reaches at the same time, no negatives of the event.

        Returns:
            Row pointers, [E + 1], and destinations, ascending and without the event's own.
        """
        order = np.lexsort((self.dst, self.time, self.src))
        src, time = self.src[order], self.time[order]
        begins = np.flatnonzero(np.r_[True, (src[1:] != src[:-1]) | (time[1:] != time[:-1])]) if len(order) else order
        sizes = np.diff(np.append(begins, len(order)))
        counts, found = np.zeros(len(self) + 1, np.int64), {}
        for begin, size in zip(begins[sizes > 1], sizes[sizes > 1], strict=True):
            events = order[begin : begin + size]
            for event in events:
                others = np.unique(self.dst[events][self.dst[events] != self.dst[event]])
                found[int(event)], counts[event + 1] = others, len(others)
        return np.cumsum(counts), np.concatenate([np.empty(0, np.int64), *(found[event] for event in sorted(found))])


@dataclass(frozen=True, eq=False, kw_only=True)
class PairIndex:
    """Distinct pairs, sorted by source, then destination.

    Attributes:
        slot: number of each event's pair, [E].
        src_ptr: where the pairs of each source begin, [sources + 1].
        dst: destination of each pair, [P].
    """

    slot: Ids
    src_ptr: Ids
    dst: Ids

    def __len__(self) -> int:
        return len(self.dst)


def split_by_quantile(
    src: npt.ArrayLike, dst: npt.ArrayLike, time: npt.ArrayLike, *, validation: float, test: float, batch_size: int
) -> EventStream:
    """Make a stream whose parts end at quantiles of the events' times; events of one time are in one part.

    Args:
        src, dst: ids of each event's source and destination; every id between the least and the largest is one.
        time: of each event, ascending.
        validation, test: shares of the events, at the end.
        batch_size: events per batch.
    """
    sources, destinations = np.asarray(src, np.int64), np.asarray(dst, np.int64)
    times = np.asarray(time, np.float64)
    if not len(sources):
        raise InputError("there are no events")
    ends = np.quantile(times, [1 - validation - test, 1 - test])
    return EventStream(
        src=sources - sources.min(),
        dst=destinations - destinations.min(),
        time=times,
        num_src=int(np.ptp(sources)) + 1,
        num_dst=int(np.ptp(destinations)) + 1,
        train_end=int(np.searchsorted(times, ends[0], side="right")),
        validation_end=int(np.searchsorted(times, ends[1], side="right")),
        batch_size=batch_size,
    )


def read_events(
    data: str, *, data_dir: str | PathLike[str] | None = None, on_stage: OnStage | None = None
) -> tuple[Ids, Ids, Floats]:
    """Read the events of a data set as its file has them: sources, destinations, times.

    Ids that are no numbers are numbered from 0 on, in alphabetical order.

    Args:
        data: name of a data set that is one table of events.
        data_dir: directory of data sets (default: $STROBE_DATA, or the user's cache).
        on_stage: called while files are downloaded.

    Raises:
        OptionError: the data set is no such table.
        InputError: its file cannot be read.
        DownloadError: its file is missing; the message says where to put it.
    """
    dataset = find(data)
    loader = dataset.loader
    if len(dataset.files) != 1 or not isinstance(loader, EventTable):
        raise OptionError(f"{dataset.name} is not one table of events")
    options = {"src": 0, "dst": 1, "time": 2} | loader.options
    [path] = fetch(dataset, find_data_dir(data_dir), on_stage).values()
    src, dst, time = _read_columns(path, [options[name] for name in ("src", "dst", "time")], options.get("ids"))
    if src.dtype.kind == "O":
        _, number = np.unique(np.concatenate([src, dst]), return_inverse=True)
        src, dst = number[: len(src)], number[len(src) :]
    return src.astype(np.int64), dst.astype(np.int64), time.astype(np.float64)


def _read_columns(path: Path, columns: list[str | int], ids: str | None) -> list[npt.NDArray[np.generic]]:
    """Read sources, destinations and times from columns with these names, or at these positions of a table without a
    header."""
    has_header = all(isinstance(column, str) for column in columns)
    names = [str(column) if has_header else f"f{column}" for column in columns]
    id_type = pa.string() if ids == "string" else pa.int64()
    types = dict(zip(names, (id_type, id_type, pa.float64()), strict=True))
    with open_text(path) as file:
        delimiter = "," if "," in file.readline() else " "
    try:
        table = csv.read_csv(
            path,
            read_options=csv.ReadOptions(autogenerate_column_names=not has_header),
            parse_options=csv.ParseOptions(delimiter=delimiter),
            convert_options=csv.ConvertOptions(column_types=types, include_columns=names),
        )
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise InputError(f"{path}: {error}") from error
    if nulls := sum(table[name].null_count for name in names):
        raise InputError(f"{path}: {nulls} values of the columns {', '.join(map(str, columns))} are empty")
    return [table[name].to_numpy() for name in names]
