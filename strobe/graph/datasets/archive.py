"""One file out of an archive, whole or not at all."""

from __future__ import annotations

import gzip
import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from strobe.errors import InputError

_BLOCK = 1 << 20
_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    RuntimeError,  # zipfile's word for a method or a password it does not know, which a wrong byte can ask for
)


def unpack(archive: Path, target: Path) -> Path:
    """Takes one file out of a .zip, .npz or .tar.*, by the end of its path there, which is that beside the archive.

    It gets its name only when all its bytes, and the archive's checksum of them where it has one, were read.
    """
    wanted = target.relative_to(archive.parent).as_posix()
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file, _member(archive, wanted) as packed:
            shutil.copyfileobj(packed, file, _BLOCK)
        part.replace(target)
    except _DAMAGE as error:
        raise _damaged(archive, error) from error
    except OSError as error:
        if error.errno is None:  # not the system's: bz2 speaks so of bad data
            raise _damaged(archive, error) from error
        raise InputError(f"cannot unpack {archive} to {target}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            part.unlink()
    return target


@contextmanager
def _member(archive: Path, wanted: str) -> Iterator[IO[bytes]]:
    if archive.suffix in (".zip", ".npz"):
        with zipfile.ZipFile(archive) as packed, packed.open(_ending(packed.namelist(), wanted, archive)) as file:
            yield file
        return
    with tarfile.open(archive) as tar:
        member = tar.extractfile(_ending(tar.getnames(), wanted, archive))
        if member is None:
            raise InputError(f"{wanted} in {archive} is no file")
        with member:
            yield member
        assert tar.fileobj is not None
        while tar.fileobj.read(_BLOCK):  # the checksum of a packed stream stands at its end
            pass


def _ending(names: list[str], wanted: str, archive: Path) -> str:
    for name in names:
        if name == wanted or name.endswith("/" + wanted):
            return name
    raise InputError(f"{archive} has no {wanted}: it holds {', '.join(names[:5]) or 'nothing'}")


def _damaged(archive: Path, error: Exception) -> InputError:
    return InputError(f"{archive} is damaged: {error}. Remove it, and it is fetched again")
