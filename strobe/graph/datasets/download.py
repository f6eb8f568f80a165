"""Resumable downloads with checksums, and extraction of one file from an archive."""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import http.client
import lzma
import shutil
import socket
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from strobe.errors import DownloadError, InputError
from strobe.graph.progress import OnProgress
from strobe.io.lock import WriteLock

_COPY_BYTES = 1 << 20
_DAMAGE_ERRORS = (
    zipfile.BadZipFile,
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    RuntimeError,  # zipfile raises it for an unknown method or a password, which a wrong byte can cause
)


def unpack(archive: Path, target: Path) -> Path:
    """Extract one file from a .zip, .npz or .tar.*, by the end of its path, atomically.

    The file gets its name only after all its bytes, and the archive's checksum if there is one, were read.
    """
    wanted = target.relative_to(archive.parent).as_posix()
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file, _open_member(archive, wanted) as packed:
            shutil.copyfileobj(packed, file, _COPY_BYTES)
        part.replace(target)
    except _DAMAGE_ERRORS as error:
        raise _damage_error(archive, error) from error
    except OSError as error:
        if error.errno is None:  # no errno: bz2 raises this for bad data
            raise _damage_error(archive, error) from error
        raise InputError(f"cannot unpack {archive} to {target}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            part.unlink()
    return target


@contextmanager
def _open_member(archive: Path, wanted: str) -> Iterator[IO[bytes]]:
    if archive.suffix in (".zip", ".npz"):
        with zipfile.ZipFile(archive) as packed, packed.open(_find_member(packed.namelist(), wanted, archive)) as file:
            yield file
        return
    with tarfile.open(archive) as tar:
        member = tar.extractfile(_find_member(tar.getnames(), wanted, archive))
        if member is None:
            raise InputError(f"{wanted} in {archive} is no file")
        with member:
            yield member
        assert tar.fileobj is not None
        while tar.fileobj.read(_COPY_BYTES):  # the checksum of a packed stream is at its end
            pass


def _find_member(names: list[str], wanted: str, archive: Path) -> str:
    for name in names:
        if name == wanted or name.endswith("/" + wanted):
            return name
    raise InputError(f"{archive} has no {wanted}: it holds {', '.join(names[:5]) or 'nothing'}")


def _damage_error(archive: Path, error: Exception) -> InputError:
    return InputError(f"{archive} is damaged: {error}. Remove it, and it is fetched again")


MAX_VERIFY_BYTES = 1 << 30
"""Files up to this size are compared with their checksum whenever they are used."""

_CHUNK = 1 << 18
_TRANSIENT_CODES = (408, 425, 429, 500, 502, 503, 504)
_CONNECTION_ERRORS = (ConnectionError, TimeoutError, http.client.HTTPException)


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Timeout and number of attempts; an attempt that received bytes does not count."""

    timeout_s: float = 30.0
    tries: int = 4
    wait_s: float = 1.0


def download(
    url: str,
    target: Path,
    *,
    on_progress: OnProgress | None = None,
    patience: RetryPolicy | None = None,
) -> Path:
    """Download a file to ``target``, resuming an earlier attempt.

    Raises:
        DownloadError: the download failed; the message says what to do.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise DownloadError(f"{url} is no address of the web")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = WriteLock(target)
    except OSError as error:
        raise DownloadError(f"cannot write to {target.parent}: {error.strerror or error}") from error
    try:
        part = target.with_name(target.name + ".part")
        _download_with_retries(url, part, target, patience or RetryPolicy(), on_progress or (lambda done, total: None))
        _sidecar(target).write_text(f"{checksum(part)}  {target.name}\n")
        part.replace(target)
        _remove_part(part)
        return target
    finally:
        lock.release()
        with contextlib.suppress(OSError):  # the folder is not empty
            target.parent.rmdir()


def verify(path: Path) -> None:
    """Refuse a downloaded file that has changed; files too large to read each time are not checked."""
    sidecar = _sidecar(path)
    if not sidecar.is_file() or path.stat().st_size > MAX_VERIFY_BYTES:
        return
    expected = sidecar.read_text().split()
    if expected and expected[0] != checksum(path):
        raise InputError(
            f"{path} is not what was downloaded: its SHA-256 is not that in {sidecar.name}. "
            f"Remove {path.name} to have it downloaded again, or {sidecar.name} if you changed it on purpose"
        )


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download_with_retries(url: str, part: Path, target: Path, patience: RetryPolicy, on_progress: OnProgress) -> None:
    """Try until the file is complete or ``attempts`` in a row received nothing."""
    vain = 0
    while True:
        before = _size(part)
        try:
            if _receive(url, part, patience.timeout_s, on_progress):
                return
            reason = "the connection was cut"
        except urllib.error.HTTPError as error:
            if error.code not in _TRANSIENT_CODES:
                raise DownloadError(f"{url} answered {error.code} {error.reason}. {_manual_hint(target)}") from error
            reason = f"the server answered {error.code} {error.reason}"
        except urllib.error.URLError as error:
            if isinstance(error.reason, socket.gaierror):
                raise DownloadError(_no_connection(url, target, "its name is not known here")) from error
            reason = str(error.reason)
        except _CONNECTION_ERRORS as error:
            reason = str(error) or type(error).__name__
        except OSError as error:
            raise DownloadError(_cannot_write(error, part)) from error
        vain = 0 if _size(part) > before else vain + 1
        if vain >= patience.tries:
            raise DownloadError(_no_connection(url, target, reason))
        time.sleep(patience.wait_s * 2**vain)


def _receive(url: str, part: Path, timeout_s: float, on_progress: OnProgress) -> bool:
    """Read from one connection; return True when the file is complete."""
    at, tag = _size(part), _tag(part)
    headers = {"User-Agent": "strobe", "Accept-Encoding": "identity"}
    if at and tag:
        headers |= {"Range": f"bytes={at}-", "If-Range": tag}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout_s) as answer:
            resumed = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {at}-")
            if answer.status == 206 and not resumed:
                _remove_part(part)  # another range than requested: start again
                return False
            start = at if resumed else 0
            length = answer.headers.get("Content-Length")
            total = None if length is None else start + int(length)
            _check_free_space(part, total, start)
            if not resumed:
                _tag_file(part).write_text(answer.headers.get("ETag") or answer.headers.get("Last-Modified") or "")
            done = _copy(answer, part, start, total, on_progress)
            return total is None or done == total
    except urllib.error.HTTPError as error:
        error.close()  # an error is a response, too, and has a connection
        if error.code != 416:
            raise
        if error.headers.get("Content-Range") == f"bytes */{at}":  # nothing is missing
            return True
        _remove_part(part)
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


def _check_free_space(part: Path, total: int | None, start: int) -> None:
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
    return f"no connection to {urlsplit(url).hostname} ({reason}). {_manual_hint(target)}"


def _manual_hint(target: Path) -> str:
    return f"Try again later, or put the file {target.name} by hand into {target.parent}"


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _sidecar(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _tag_file(part: Path) -> Path:
    """Return the server's tag of this version: a partial file is only continued by the same version."""
    return part.with_name(part.name + ".tag")


def _tag(part: Path) -> str:
    return _tag_file(part).read_text() if _tag_file(part).is_file() else ""


def _remove_part(part: Path) -> None:
    part.unlink(missing_ok=True)
    _tag_file(part).unlink(missing_ok=True)
