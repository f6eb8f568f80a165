"""The run directory: what a run was made of, how it went, what came out, and what it needs to go on.

``config.json`` says what was trained on what, ``record.jsonl`` has a line per epoch, ``checkpoints`` all that a run
needs to go on, ``best.pt`` the best weights, ``result.json`` and ``learning_curve.svg`` come at the end; TensorBoard
finds its events here.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from strobe.atomic import UNFINISHED, disk_is_full, without_nan, write_json, write_whole
from strobe.engine.checkpoint import Checkpoints, State, has_checkpoint
from strobe.engine.tensorboard import EVENTS, Events
from strobe.errors import FormatError, OptionError, StrobeError
from strobe.graph.lock import WriteLock

FORMAT, VERSION = "strobe-run", 2
CONFIG, LINES, RESULT, CURVE = "config.json", "record.jsonl", "result.json", "learning_curve.svg"
SLOTS, STEPS, TRAPEZOID, ONLINE = "relay.svg", "schedule.svg", "trapezoid.svg", "online.svg"
_OF_VERSION_1 = "last.pt"


class Record:
    """A record that keeps nothing: a run without a directory. The base of the one that does."""

    path: Path | None = None
    earlier: dict[str, Any] | None = None
    """The configuration of the run that is to be resumed."""

    def announce(self, config: dict[str, Any]) -> None:
        """Says what a run will be that cannot begin yet, so that it can be resumed."""

    def start(self, config: dict[str, Any], state: State) -> str | None:
        """Begins a run, or brings the state back to where it stopped. Gives a note for the user, if any."""

    def epoch(self, line: dict[str, Any]) -> None:
        """An epoch is over."""

    def event(self, event: str, **values: Any) -> None:
        """Something other than an epoch happened."""

    def is_due(self, *, now: bool = False) -> bool:
        """Whether it is time for a checkpoint; ``now`` wants one in any case."""
        return False

    def save(self, state: State) -> None:
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


class RunDirectory(Record):
    """A record on disk. Nothing of an earlier run is touched before ``start``; one process at a time may write."""

    def __init__(self, path: Path, *, resume: bool = False, overwrite: bool = False) -> None:
        self.path: Path = path
        self._file: Any = None
        self._events: Events | None = None
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
        write_json(self.path / CONFIG, {"format": FORMAT, "version": VERSION, **config})

    def start(self, config: dict[str, Any], state: State) -> str | None:
        self.path.mkdir(exist_ok=True)
        if self.earlier is None:
            self._checkpoints.clear()
            for name in (RESULT, CURVE, SLOTS, STEPS, TRAPEZOID, ONLINE, LINES, _OF_VERSION_1):
                (self.path / name).unlink(missing_ok=True)
            for old in self.path.glob(EVENTS):
                old.unlink()
        else:
            self._checkpoints.sweep()
            self._checkpoints.restore(state)
            state.history = self._kept_epochs(state.epoch)
        for half in self.path.glob(UNFINISHED):
            half.unlink()
        write_json(self.path / CONFIG, {"format": FORMAT, "version": VERSION, **config})
        # Unbuffered: a line is one write, so that a killed run leaves whole lines.
        self._file = (self.path / LINES).open("ab", buffering=0)
        self._events = Events(self.path, state.epoch)
        self.event("start" if self.earlier is None else "resume", epoch=state.epoch)
        return self._events.missing

    def epoch(self, line: dict[str, Any]) -> None:
        self.event("epoch", **line)
        assert self._events is not None
        self._events.add(line)

    def event(self, event: str, **values: Any) -> None:
        if self._file is not None:
            line = {"event": event, "at": round(time.time(), 3), **without_nan(values)}
            text = (json.dumps(line, allow_nan=False) + "\n").encode()
            if self._file.write(text) < len(text):  # what comes next would stand in the same line
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def is_due(self, *, now: bool = False) -> bool:
        return now or self._checkpoints.is_due()

    def save(self, state: State) -> None:
        # The lines of its epochs go to the disk before it.
        self._checkpoints.save(state, first=lambda: os.fsync(self._file.fileno()))

    def draw(self, pictures: Mapping[str, str | None]) -> None:
        for name, picture in pictures.items():
            if picture is not None:
                write_whole(self.path / name, partial(_write_text, picture))

    def finish(self, result: dict[str, Any], pictures: Mapping[str, str | None]) -> None:
        self._checkpoints.wait()  # a run with a result has all its checkpoints
        write_json(self.path / RESULT, result)
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

    def _kept_epochs(self, epoch: int) -> list[dict[str, Any]]:
        """The lines of all epochs up to one; those that the checkpoint does not know are cut off the file."""
        lines = read_lines(self.path)
        later = [k for k, line in enumerate(lines) if line["event"] == "epoch" and line["epoch"] > epoch]
        kept = lines[: later[0]] if later else lines
        epochs = [line for line in kept if line["event"] == "epoch"]
        if [line["epoch"] for line in epochs] != list(range(1, epoch + 1)):
            raise FormatError(f"{self.path / LINES} is damaged: it does not have all {epoch} epochs of the checkpoint")
        text = "".join(json.dumps(line) + "\n" for line in kept)
        write_whole(self.path / LINES, lambda file: file.write(text.encode()))
        return epochs


def open_record(out: str | os.PathLike[str] | None, *, resume: bool, overwrite: bool) -> Record:
    """The record of a run: in a directory, or nowhere."""
    if out is not None:
        return RunDirectory(Path(out), resume=resume, overwrite=overwrite)
    if resume or overwrite:
        raise OptionError("say which run directory is meant, with out")
    return Record()


def read_config(path: Path) -> dict[str, Any]:
    """What a run was made of."""
    try:
        config = json.loads((path / CONFIG).read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise FormatError(f"there is no run at {path}: no {CONFIG} is there") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise FormatError(f"{path / CONFIG} is damaged: {error}") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise FormatError(f"{path} is not the directory of a run")
    version = config.get("version", 0)
    if version > VERSION:
        raise FormatError(f"{path} was written by a newer Strobe (version {version} of the format, not {VERSION})")
    if version < VERSION:
        raise FormatError(
            f"{path} was written by an older Strobe (version {version} of the format, not {VERSION}): use that one, or "
            "train again (--overwrite)"
        )
    return config


def last_begun(path: Path | None) -> tuple[int, int] | None:
    """What tells the run that has begun in a directory from any that begins there later; None where there is none."""
    if path is None or not (path / CONFIG).exists():
        return None
    found = (path / CONFIG).stat()
    return found.st_ino, found.st_mtime_ns


def refuse_other_kind(path: Path, config: Mapping[str, Any], *, watches: bool) -> None:
    """Raises where a run is to go on in another way than it began: watching a source, or training on a graph."""
    if watches and "watch" not in config:
        raise OptionError(f"the run at {path} was trained on a graph that was there: go on with strobe train --resume")
    if not watches and "watch" in config:
        raise OptionError(
            f"the run at {path} watches a source: go on with strobe watch --resume, or train another on {path}/graph"
        )


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a run's record; one that a dying machine left unfinished ends them."""
    lines: list[dict[str, Any]] = []
    if not (path / LINES).exists():
        return lines
    for text in (path / LINES).read_text(errors="replace").splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            break
    return lines


def _refuse(path: Path, resume: bool, overwrite: bool) -> None:
    if resume and overwrite:
        raise OptionError("a run is resumed or overwritten, not both")
    if path.exists() and not path.is_dir():
        raise OptionError(f"{path} is a file: a run needs a directory of its own")
    if resume or not path.exists() or not any(path.iterdir()):
        return
    if not (path / CONFIG).exists():
        raise OptionError(f"{path} is there and holds something else than a run: choose another place (--out)")
    if not overwrite:
        raise OptionError(
            f"there is a run at {path} already: go on with it (--resume), choose another place (--out), or replace "
            "it (--overwrite)"
        )


def _write_text(text: str, file: BinaryIO) -> None:
    file.write(text.encode())
