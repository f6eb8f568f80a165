"""Downloads that resume, are checked, and say plainly what went wrong.

A file arrives as NAME.part and gets its name only when it is whole: as long as announced, and of the right
checksum. Where the checksum is not known beforehand, that of the first download is kept in NAME.sha256, so that
a later change of the file is seen.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import shutil
import socket
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from strobe.errors import DownloadError, InputError
from strobe.graph.lock import WriteLock
from strobe.graph.progress import OnProgress

VERIFY_UP_TO = 1 << 30
"""Bytes up to which a file with a kept checksum is read through whenever it is used."""

_CHUNK = 1 << 18
_PASSING = (408, 425, 429, 500, 502, 503, 504)
_DROPPED = (ConnectionError, TimeoutError, http.client.HTTPException)


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to wait and how often to try again; a try that brought bytes does not count."""

    timeout_s: float = 30.0
    tries: int = 4
    wait_s: float = 1.0


def download(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    on_progress: OnProgress | None = None,
    patience: Patience | None = None,
) -> Path:
    """Fetches a file to ``target``, going on where an earlier try was cut. Raises DownloadError with what to do."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise DownloadError(f"{url} is no address of the web")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = WriteLock(target)
    except OSError as error:
        raise DownloadError(f"cannot write to {target.parent}: {error.strerror or error}") from error
    try:
        part = target.with_name(target.name + ".part")
        _persist(url, part, target, patience or Patience(), on_progress or (lambda done, total: None))
        digest = checksum(part)
        if sha256 is not None and digest != sha256:
            _forget(part)
            raise DownloadError(f"{url} gave a file with SHA-256 {digest}, not {sha256}. It was removed: try again")
        _sidecar(target).write_text(f"{digest}  {target.name}\n")
        part.replace(target)
        _forget(part)
        return target
    finally:
        lock.release()
        with contextlib.suppress(OSError):  # a folder that holds something stays
            target.parent.rmdir()


def verify(path: Path) -> None:
    """Refuses a downloaded file that is no longer what it was; one too large to be read each time is taken as it is."""
    sidecar = _sidecar(path)
    if not sidecar.is_file() or path.stat().st_size > VERIFY_UP_TO:
        return
    kept = sidecar.read_text().split()
    if kept and kept[0] != checksum(path):
        raise InputError(
            f"{path} is not what was downloaded: its SHA-256 is not that in {sidecar.name}. "
            f"Remove {path.name} to have it downloaded again, or {sidecar.name} if you changed it on purpose"
        )


def checksum(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _persist(url: str, part: Path, target: Path, patience: Patience, on_progress: OnProgress) -> None:
    """Tries until the file is whole or as many tries in a row brought nothing."""
    vain = 0
    while True:
        before = _size(part)
        try:
            if _receive(url, part, patience.timeout_s, on_progress):
                return
            reason = "the connection was cut"
        except urllib.error.HTTPError as error:
            if error.code not in _PASSING:
                raise DownloadError(f"{url} answered {error.code} {error.reason}. {_by_hand(target)}") from error
            reason = f"the server answered {error.code} {error.reason}"
        except urllib.error.URLError as error:
            if isinstance(error.reason, socket.gaierror):
                raise DownloadError(_no_connection(url, target, "its name is not known here")) from error
            reason = str(error.reason)
        except _DROPPED as error:
            reason = str(error) or type(error).__name__
        except OSError as error:
            raise DownloadError(_cannot_write(error, part)) from error
        vain = 0 if _size(part) > before else vain + 1
        if vain >= patience.tries:
            raise DownloadError(_no_connection(url, target, reason))
        time.sleep(patience.wait_s * 2**vain)


def _receive(url: str, part: Path, timeout_s: float, on_progress: OnProgress) -> bool:
    """One connection's worth of bytes; True when the file is whole."""
    at, tag = _size(part), _tag(part)
    headers = {"User-Agent": "strobe", "Accept-Encoding": "identity"}
    if at and tag:
        headers |= {"Range": f"bytes={at}-", "If-Range": tag}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout_s) as answer:
            resumed = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {at}-")
            if answer.status == 206 and not resumed:
                _forget(part)  # another part than asked for: begin anew
                return False
            start = at if resumed else 0
            length = answer.headers.get("Content-Length")
            total = None if length is None else start + int(length)
            _refuse_full_disk(part, total, start)
            if not resumed:
                _tag_file(part).write_text(answer.headers.get("ETag") or answer.headers.get("Last-Modified") or "")
            done = _copy(answer, part, start, total, on_progress)
            return total is None or done == total
    except urllib.error.HTTPError as error:
        error.close()  # it is an answer, too, and has a connection
        if error.code != 416:
            raise
        if error.headers.get("Content-Range") == f"bytes */{at}":  # nothing is missing
            return True
        _forget(part)
        return False


def _copy(answer: http.client.HTTPResponse, part: Path, start: int, total: int | None, on_progress: OnProgress) -> int:
    done = start
    with part.open("ab" if start else "wb") as file:
        on_progress(done, total)
        while chunk := answer.read(_CHUNK):
            file.write(chunk)
            done += len(chunk)
            on_progress(done, total)
    return done


def _refuse_full_disk(part: Path, total: int | None, start: int) -> None:
    if total is None:
        return
    free = shutil.disk_usage(part.parent).free
    if total - start > free:
        raise OSError(errno.ENOSPC, f"{(total - start) >> 20:,} MiB are needed and {free >> 20:,} MiB are free")


def _cannot_write(error: OSError, part: Path) -> str:
    if error.errno == errno.ENOSPC:
        return f"the disk of {part.parent} is full ({error.strerror}): make room, and the download goes on"
    return f"cannot write {part}: {error.strerror or error}"


def _no_connection(url: str, target: Path, reason: str) -> str:
    return f"no connection to {urlsplit(url).hostname} ({reason}). {_by_hand(target)}"


def _by_hand(target: Path) -> str:
    return f"Try again later, or put the file {target.name} by hand into {target.parent}"


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _sidecar(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _tag_file(part: Path) -> Path:
    """What the server calls this version of the file: a part is only continued by the same."""
    return part.with_name(part.name + ".tag")


def _tag(part: Path) -> str:
    return _tag_file(part).read_text() if _tag_file(part).is_file() else ""


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _tag_file(part).unlink(missing_ok=True)
