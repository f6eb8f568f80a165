from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from strobe.errors import InputError
from strobe.graph.datasets.download import unpack

BODY = "".join(f"{src} {dst}\n" for src, dst in np.random.default_rng(0).integers(0, 500, (60, 2))).encode()
OTHER = b"another file after it" * 50


def zipped(method: int) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", method) as archive:
        archive.writestr("net/a.txt", BODY)
        archive.writestr("net/other", OTHER)
    return held.getvalue()


def tarred(packing: str, **options: int) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode=f"w:{packing}", **options) as archive:  # type: ignore[call-overload]
        for name, body in (("net/a.txt", BODY), ("net/other", OTHER)):
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return held.getvalue()


ARCHIVES = {
    "stored.zip": zipped(zipfile.ZIP_STORED),
    "deflated.zip": zipped(zipfile.ZIP_DEFLATED),
    "bz2.zip": zipped(zipfile.ZIP_BZIP2),
    "lzma.zip": zipped(zipfile.ZIP_LZMA),
    "a.tar.gz": tarred("gz"),
    "a.tar.bz2": tarred("bz2"),
    "a.tar.xz": tarred("xz"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_file_comes_out_as_it_went_in(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(ARCHIVES[name])
    assert unpack(tmp_path / name, tmp_path / "a.txt").read_bytes() == BODY


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_wrong_byte_is_found_or_does_no_harm(name: str, tmp_path: Path) -> None:
    archive, target = tmp_path / name, tmp_path / "a.txt"
    refused = 0
    for at in range(0, len(ARCHIVES[name]), 5):
        damaged = bytearray(ARCHIVES[name])
        damaged[at] ^= 0xFF
        archive.write_bytes(damaged)
        try:
            assert unpack(archive, target).read_bytes() == BODY
        except InputError:
            refused += 1
            assert [path.name for path in tmp_path.iterdir()] == [name]
        target.unlink(missing_ok=True)
    assert refused


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_that_was_cut_short_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(ARCHIVES[name][:-20])
    with pytest.raises(InputError, match=r"(?s)is damaged: .*Remove it, and it is fetched again"):
        unpack(tmp_path / name, tmp_path / "a.txt")


def test_wrong_byte_is_detected_by_the_final_checksum(tmp_path: Path) -> None:
    plain = tarred("gz", compresslevel=0)
    (tmp_path / "a.tar.gz").write_bytes(plain.replace(BODY, b"9" + BODY[1:]))
    with pytest.raises(InputError, match="is damaged: CRC check failed"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "a.txt")
    assert not (tmp_path / "a.txt").exists()


def test_unwritable_target_is_not_reported_as_damage(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(ARCHIVES["stored.zip"])
    (tmp_path / "net").write_text("a file where a folder should be")
    with pytest.raises(InputError, match=r"cannot unpack .*a\.zip to .*net/a\.txt: "):
        unpack(tmp_path / "a.zip", tmp_path / "net" / "a.txt")
