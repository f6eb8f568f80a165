"""The run directory: what a run was made of, how it went, what came out, and what it needs to go on.

``config.json`` says what was trained on what, ``record.jsonl`` has a line per epoch, ``checkpoints`` all that a run
needs to go on, ``best.safetensors`` the best weights, ``result.json`` and ``learning_curve.svg`` come at the end;
TensorBoard finds its events here.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from strobe.engine.checkpoint.store import BEST, LAST, Checkpoints, TrainState, has_checkpoint
from strobe.engine.records.schema import check_config, check_line, check_result
from strobe.engine.records.tensorboard import EVENT_FILES, EventWriter
from strobe.errors import FormatError, OptionError, StrobeError
from strobe.io.atomic import UNFINISHED_GLOB, disk_is_full, finished_name, write_atomic
from strobe.io.checksum import (
    add_checksum,
    checksum_error,
    parse_json,
    read_checksummed_json,
    read_json,
    strip_checksum,
    write_checksummed_json,
)
from strobe.io.lock import WriteLock

FORMAT, VERSION = "strobe-run", 4
CONFIG, LINES, RESULT, CURVE = "config.json", "record.jsonl", "result.json", "learning_curve.svg"
PIPELINE, SCHEDULE, TRAPEZOID, ONLINE = "relay.svg", "schedule.svg", "trapezoid.svg", "online.svg"
RELIABILITY = "reliability.svg"
_OF_OLDER_VERSIONS = ("last.pt", "best.pt")
_ADVICE = "put the file back as Strobe wrote it, or train again (--overwrite)"


class RunRecord:
    """A record without a directory: nothing is written. The base of ``RunDirectory``."""

    path: Path | None = None
    earlier: dict[str, Any] | None = None
    """The configuration of the run that is to be resumed."""

    def announce(self, config: dict[str, Any]) -> None:
        """Says what a run will be that cannot begin yet, so that it can be resumed."""

    def start(self, config: dict[str, Any], state: TrainState) -> None:
        """Begins a run, or brings the state back to where it stopped."""

    def epoch(self, line: dict[str, Any]) -> None:
        """An epoch is over."""

    def event(self, event: str, **values: Any) -> None:
        """Something other than an epoch happened."""

    def is_due(self, *, now: bool = False) -> bool:
        """Whether it is time for a checkpoint; ``now`` wants one in any case."""
        return False

    def save(self, state: TrainState) -> None:
        """A checkpoint."""

    def draw(self, pictures: Mapping[str, str | None]) -> None:
        """Pictures (SVG) by name, in place of those that are there; None where there is nothing to show."""

    def finish(self, result: dict[str, Any], pictures: Mapping[str, str | None]) -> None:
        """Training is over and scored."""

    def close(self) -> None:
        """Lets go of the directory."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self.close()
        except Exception as failed:
            if error is None:
                raise
            error.add_note(f"its last checkpoint could not be written, either: {failed}")  # what ended it goes first


class RunDirectory(RunRecord):
    """A record on disk. Nothing of an earlier run is touched before ``start``; one process at a time may write."""

    def __init__(self, path: Path, *, resume: bool = False, overwrite: bool = False) -> None:
        self.path: Path = path
        self._file: Any = None
        self._events: EventWriter | None = None
        self._checkpoints = Checkpoints(path)
        _refuse(path, resume, overwrite)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = WriteLock(path.resolve())
        try:
            self.earlier = read_config(path) if resume else None
        except BaseException:
            self._lock.release()
            raise

    def announce(self, config: dict[str, Any]) -> None:
        self.path.mkdir(exist_ok=True)
        self._checkpoints.clear()  # before the configuration: they are of another run
        (self.path / LINES).unlink(missing_ok=True)
        write_checksummed_json(self.path / CONFIG, {"format": FORMAT, "version": VERSION, **config})

    def start(self, config: dict[str, Any], state: TrainState) -> None:
        self.path.mkdir(exist_ok=True)
        if self.earlier is None:
            self._checkpoints.clear()
            for name in (RESULT, CURVE, PIPELINE, SCHEDULE, TRAPEZOID, ONLINE, RELIABILITY, LINES, *_OF_OLDER_VERSIONS):
                (self.path / name).unlink(missing_ok=True)
            for old in self.path.glob(EVENT_FILES):
                old.unlink()
        else:
            self._checkpoints.remove_unfinished()
            self._checkpoints.restore(state)
            state.history = self._truncate_to_epoch(state.epoch)
        for half in self.path.glob(UNFINISHED_GLOB):
            half.unlink()
        write_checksummed_json(self.path / CONFIG, {"format": FORMAT, "version": VERSION, **config})
        # Unbuffered: a line is one write, so that a killed run leaves whole lines.
        self._file = (self.path / LINES).open("ab", buffering=0)
        self._events = EventWriter(self.path, state.epoch + 1 if state.epoch else None)
        self.event("start" if self.earlier is None else "resume", epoch=state.epoch)

    def epoch(self, line: dict[str, Any]) -> None:
        self.event("epoch", **line)
        if self._events is not None:
            log_epoch(self._events, line)

    def event(self, event: str, **values: Any) -> None:
        if self._file is not None:
            line = add_checksum({"event": event, "at": round(time.time(), 3), **values})
            text = (json.dumps(line) + "\n").encode()
            if self._file.write(text) < len(text):  # what comes next would stand in the same line
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def is_due(self, *, now: bool = False) -> bool:
        return now or self._checkpoints.is_due()

    def save(self, state: TrainState) -> None:
        # The lines of its epochs go to the disk before it.
        self._checkpoints.save(state, first=lambda: os.fsync(self._file.fileno()))

    def draw(self, pictures: Mapping[str, str | None]) -> None:
        for name, picture in pictures.items():
            if picture is not None:
                write_atomic(self.path / name, partial(_write_text, picture))

    def finish(self, result: dict[str, Any], pictures: Mapping[str, str | None]) -> None:
        self._checkpoints.wait()  # a run with a result has all its checkpoints
        write_checksummed_json(self.path / RESULT, result)
        self.draw(pictures)
        scores = {name: result[name] for name in ("best_epoch", "validation", "test")}
        self.event("finish", epoch=result["epochs"], **scores)

    def close(self) -> None:
        try:
            self._checkpoints.close()
        finally:
            if self._events is not None:
                self._events.close()
            if self._file is not None:
                self._file.close()
            self._lock.release()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            super().__exit__(kind, error, at)
        except Exception as failed:
            if not disk_is_full(failed):
                raise
            error = failed
        if disk_is_full(error):
            how = "and go on with it (--resume)" if has_checkpoint(self.path) else "or choose another place (--out)"
            raise StrobeError(
                f"the disk is full, the run at {self.path} has stopped: free some space, {how}"
            ) from error

    def _truncate_to_epoch(self, epoch: int) -> list[dict[str, Any]]:
        """The lines of all epochs up to one; those that the checkpoint does not know are cut off the file.

        Lines up to the checkpoint's epoch were on the disk before it; after them a machine that died may have left
        anything.
        """
        kept, epochs = [], list[dict[str, Any]]()
        for text, line in _lines(self.path / LINES):
            if line is None or (line["event"] == "epoch" and line["epoch"] > epoch):
                break
            kept.append(text)
            if line["event"] == "epoch":
                epochs.append(line)
        if len(epochs) != epoch or any(line["epoch"] != k for k, line in enumerate(epochs, 1)):
            raise FormatError(f"{self.path / LINES} is damaged: it does not have all {epoch} epochs of the checkpoint")
        write_atomic(self.path / LINES, lambda file: file.write(b"".join(kept)))
        return epochs


def log_epoch(events: EventWriter, line: Mapping[str, Any]) -> None:
    """Log loss, validation metrics, seconds and memory of an epoch."""
    values = {**line, **{f"validation/{metric}": score for metric, score in line.get("validation", {}).items()}}
    scalars = {name: value for name, value in values.items() if name != "epoch" and isinstance(value, int | float)}
    events.add_scalars(scalars, line["epoch"])


def open_record(out: str | os.PathLike[str] | None, *, resume: bool, overwrite: bool) -> RunRecord:
    """The record of a run: in a directory, or nowhere."""
    if out is not None:
        return RunDirectory(Path(out), resume=resume, overwrite=overwrite)
    if resume or overwrite:
        raise OptionError("say which run directory is meant, with out")
    return RunRecord()


def read_config(path: Path) -> dict[str, Any]:
    """What a run was made of."""
    try:
        config = read_json(path / CONFIG)
    except FileNotFoundError:
        begin = "there is nothing to go on with, start one (leave out --resume)"
        raise FormatError(f"there is no run at {path}: no {CONFIG} is there; {begin}") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise FormatError(f"{path} is not the directory of a run: its {CONFIG} is another program's")
    version = config.get("version")
    if version != VERSION:
        age = "a newer" if isinstance(version, int) and version > VERSION else "an older"
        raise FormatError(
            f"{path} was written by {age} Strobe (version {version} of the format, not {VERSION}): use that one, or "
            "train again (--overwrite)"
        )
    found = strip_checksum(config)
    if found is None:
        raise checksum_error(path / CONFIG, f"{_ADVICE}. Settings that may change are given with --resume")
    check_config(path / CONFIG, found)
    return found


def read_result(path: Path) -> dict[str, Any] | None:
    """What came out of the run in a directory; None where it has not finished."""
    try:
        found = read_checksummed_json(path / RESULT, "remove it, and finish the run again (--resume)")
    except FileNotFoundError:
        return None
    check_result(path / RESULT, found)
    return found


def last_started(path: Path | None) -> tuple[int, int] | None:
    """An id of the run that has started in a directory; None without one."""
    if path is None or not (path / CONFIG).exists():
        return None
    found = (path / CONFIG).stat()
    return found.st_ino, found.st_mtime_ns


def refuse_other_kind(path: Path, config: Mapping[str, Any], *, online: bool) -> None:
    """Refuse to resume an online run as an ordinary one, and the reverse."""
    if online and "online" not in config:
        raise OptionError(f"the run at {path} was trained on a graph that was there: go on with strobe train --resume")
    if not online and "online" in config:
        raise OptionError(
            f"the run at {path} watches a source: go on with strobe online --resume, or train another on {path}/graph"
        )


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a run's record, without one at the end that a killed process left unfinished."""
    lines = []
    for number, (_, line) in enumerate(_lines(path / LINES), 1):
        if line is None:
            raise checksum_error(path / LINES, f"see line {number}. Go on with the run (--resume), or {_ADVICE}")
        lines.append(line)
    return lines


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """Whole lines of a record, as they are and as they are read: None for one that is not as it was written."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        for text in file:
            if text.endswith(b"\n"):
                try:
                    line = strip_checksum(parse_json(text))
                except ValueError:
                    line = None
                if line is not None:
                    check_line(path, line)
                yield text, line


def remove_run(path: Path) -> None:
    """Removes a run's directory, its configuration last: what is left at any moment can be overwritten."""
    with suppress(OSError):
        for found in sorted(path.iterdir(), key=lambda each: each.name == CONFIG):
            if found.is_dir() and not found.is_symlink():
                shutil.rmtree(found)
            else:
                found.unlink()
        path.rmdir()


def _refuse(path: Path, resume: bool, overwrite: bool) -> None:
    if resume and overwrite:
        raise OptionError("a run is resumed or overwritten, not both")
    if path.exists() and not path.is_dir():
        raise OptionError(f"{path} is a file: a run needs a directory of its own")
    if resume or not path.exists() or all(_is_unfinished(each) for each in path.iterdir()):
        return
    if not _holds_run(path):
        raise OptionError(f"{path} is there and holds something else than a run: choose another place (--out)")
    if not overwrite:
        raise OptionError(
            f"there is a run at {path} already: go on with it (--resume), choose another place (--out), or replace "
            "it (--overwrite)"
        )


def _is_unfinished(path: Path) -> bool:
    """Whether a file or folder is one that a process was killed while writing, before its run had begun."""
    if path.name == LAST and path.is_dir() and not path.is_symlink():
        return all(finished_name(each.name) is not None for each in path.iterdir())
    return finished_name(path.name) in (CONFIG, LINES, BEST, RESULT)


def _holds_run(path: Path) -> bool:
    """Whether a directory is that of a run, even of one whose configuration is damaged."""
    try:
        return FORMAT.encode() in (path / CONFIG).read_bytes() or has_checkpoint(path)
    except OSError:
        return False


def _write_text(text: str, file: BinaryIO) -> None:
    file.write(text.encode())
