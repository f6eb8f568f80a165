from __future__ import annotations

import errno
import hashlib
import shutil
import socket
import urllib.request
from http.client import HTTPResponse
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError, URLError

import pytest

from strobe.errors import DownloadError, OptionError
from strobe.graph.datasets import download as module
from strobe.graph.datasets.download import RetryPolicy, download, verify
from strobe.io.lock import WriteLock
from tests.support.web import Site

BODY = bytes(range(256)) * 4000
SHA = hashlib.sha256(BODY).hexdigest()
SOON = RetryPolicy(timeout_s=5, tries=2, wait_s=0.01)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "set" / "file.gz"


def names(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir()) if target.parent.exists() else []


def test_a_file_arrives_whole_and_leaves_its_checksum(site: Site, target: Path) -> None:
    site.files["file.gz"] = BODY
    steps: list[tuple[int, int | None]] = []
    download(f"{site.url}/file.gz", target, on_progress=lambda done, total: steps.append((done, total)), patience=SOON)
    assert target.read_bytes() == BODY
    assert names(target) == ["file.gz", "file.gz.sha256"]
    assert (target.parent / "file.gz.sha256").read_text() == f"{SHA}  file.gz\n"
    assert steps[0] == (0, len(BODY))
    assert steps[-1] == (len(BODY), len(BODY))
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)


def test_a_cut_connection_is_resumed_where_it_stopped(site: Site, target: Path) -> None:
    site.files["file.gz"] = BODY
    site.cut_after, site.answers = [300_000, 200_000], [503]  # a busy server is tried again
    download(f"{site.url}/file.gz", target, patience=SOON)
    assert target.read_bytes() == BODY
    assert site.asked == [None, None, "bytes=300000-", "bytes=500000-"]


def test_a_later_call_goes_on_with_the_part_of_an_earlier_one(site: Site, target: Path) -> None:
    site.files["file.gz"] = BODY
    site.cut_after = [400_000, 0, 0]
    with pytest.raises(DownloadError, match="the connection was cut"):
        download(f"{site.url}/file.gz", target, patience=SOON)
    assert names(target) == ["file.gz.part", "file.gz.part.tag"]
    download(f"{site.url}/file.gz", target, patience=SOON)
    assert site.asked[-1] == "bytes=400000-"
    assert target.read_bytes() == BODY
    assert names(target) == ["file.gz", "file.gz.sha256"]


@pytest.mark.parametrize("more", [b"", b"more"])
def test_a_whole_part_needs_no_more_bytes_and_a_longer_one_is_thrown_away(
    site: Site, target: Path, more: bytes
) -> None:
    site.files["file.gz"] = BODY
    target.parent.mkdir()
    (target.parent / "file.gz.part").write_bytes(BODY + more)
    (target.parent / "file.gz.part.tag").write_text('"v1"')
    download(f"{site.url}/file.gz", target, patience=SOON)
    assert target.read_bytes() == BODY


@pytest.mark.parametrize("flaw", ["no ranges", "no tag", "wrong part"])
def test_download_restarts_if_server_cannot_resume(site: Site, target: Path, flaw: str) -> None:
    site.files["file.gz"] = BODY
    site.cut_after = [300_000]
    site.ranges = flaw != "no ranges"
    site.tag = None if flaw == "no tag" else site.tag
    site.shift = 7 if flaw == "wrong part" else 0
    download(f"{site.url}/file.gz", target, patience=SOON)
    assert target.read_bytes() == BODY


def test_a_part_is_not_continued_with_another_version(site: Site, target: Path) -> None:
    site.files["file.gz"] = b"x" * 1000
    site.cut_after = [400, 0, 0]
    with pytest.raises(DownloadError):
        download(f"{site.url}/file.gz", target, patience=SOON)
    site.files["file.gz"], site.tag = b"y" * 1000, '"v2"'
    download(f"{site.url}/file.gz", target, patience=SOON)
    assert target.read_bytes() == b"y" * 1000


def test_a_file_of_unannounced_length_ends_with_the_connection(site: Site, target: Path) -> None:
    site.files["file.gz"], site.announce = BODY, False
    totals: set[int | None] = set()
    download(f"{site.url}/file.gz", target, on_progress=lambda _, total: totals.add(total), patience=SOON)
    assert target.read_bytes() == BODY
    assert totals == {None}


def test_server_that_stays_busy_raises(site: Site, target: Path) -> None:
    site.answers = [503] * 5
    with pytest.raises(DownloadError, match=r"no connection to 127\.0\.0\.1 \(the server answered 503"):
        download(f"{site.url}/file.gz", target, patience=SOON)
    assert len(site.asked) == SOON.tries


def test_missing_file_is_not_retried(site: Site, target: Path) -> None:
    told = r"answered 404 Not Found.*put the file file\.gz by hand into .*set$"
    with pytest.raises(DownloadError, match=told) as caught:
        download(f"{site.url}/file.gz", target, patience=SOON)
    answer = caught.value.__cause__
    assert isinstance(answer, HTTPError)
    assert isinstance(answer.fp, HTTPResponse)
    assert answer.fp.isclosed()  # no connection is left open
    assert len(site.asked) == 1
    assert not target.parent.exists(), "an empty folder was left behind"


def test_connection_error_names_the_target_folder(target: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(DownloadError, match=r"no connection to 127\.0\.0\.1 .*put the file file\.gz by hand into"):
        download(f"http://127.0.0.1:{port}/file.gz", target, patience=SOON)


def test_unknown_host_is_not_retried(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def fail(request: Any, timeout: float) -> None:
        calls.append(request)
        raise URLError(socket.gaierror(-2, "Name or service not known"))

    monkeypatch.setattr(urllib.request, "urlopen", fail)
    with pytest.raises(DownloadError, match=r"no connection to data\.example \(its name is not known here\)"):
        download("https://data.example/file.gz", target, patience=SOON)
    assert len(calls) == 1


def test_insufficient_disk_space_is_detected_before_downloading(
    site: Site, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.files["file.gz"] = BODY
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(DownloadError, match=r"is full .*make room, and the download goes on"):
        download(f"{site.url}/file.gz", target, patience=SOON)
    assert not target.exists()


def test_a_disk_that_fills_up_keeps_the_part(site: Site, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.files["file.gz"] = BODY

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "_copy", full)
    with pytest.raises(DownloadError, match="No space left on device"):
        download(f"{site.url}/file.gz", target, patience=SOON)


def test_places_and_addresses_that_cannot_be_used_are_named(site: Site, target: Path) -> None:
    target.parent.write_text("a file where a folder should be")
    with pytest.raises(DownloadError, match=r"cannot write to .*set"):
        download(f"{site.url}/file.gz", target, patience=SOON)
    for url in ("file:///etc/hostname", "ftp://example/file"):
        with pytest.raises(DownloadError, match="no address of the web"):
            download(url, target)
    lock = WriteLock(target.parent.with_name("other"))
    with pytest.raises(OptionError, match="being written by another process"):
        download(f"{site.url}/file.gz", target.parent.with_name("other"), patience=SOON)
    lock.release()


def test_a_huge_file_is_not_read_each_time(site: Site, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.files["file.gz"] = BODY
    download(f"{site.url}/file.gz", target, patience=SOON)

    def fail(path: Path) -> str:
        raise AssertionError(f"{path} is read")

    monkeypatch.setattr(module, "checksum", fail)
    monkeypatch.setattr(module, "MAX_VERIFY_BYTES", len(BODY) - 1)
    verify(target)
    monkeypatch.setattr(module, "MAX_VERIFY_BYTES", len(BODY))
    with pytest.raises(AssertionError, match="is read"):
        verify(target)
