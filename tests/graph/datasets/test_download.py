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

from strobe.errors import DownloadError, InputError, OptionError
from strobe.graph.datasets import download as module
from strobe.graph.datasets.download import RetryPolicy, checksum, download, verify
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
    site.cut_after = [300_000, 200_000]
    download(f"{site.url}/file.gz", target, sha256=SHA, patience=SOON)
    assert target.read_bytes() == BODY
    assert site.asked == [None, "bytes=300000-", "bytes=500000-"]


def test_a_later_call_goes_on_with_the_part_of_an_earlier_one(site: Site, target: Path) -> None:
    site.files["file.gz"] = BODY
    site.cut_after = [400_000, 0, 0]
    with pytest.raises(DownloadError, match="the connection was cut"):
        download(f"{site.url}/file.gz", target, patience=SOON)
    assert names(target) == ["file.gz.part", "file.gz.part.tag"]
    download(f"{site.url}/file.gz", target, sha256=SHA, patience=SOON)
    assert site.asked[-1] == "bytes=400000-"
    assert names(target) == ["file.gz", "file.gz.sha256"]


def test_a_part_that_is_whole_already_needs_no_more_bytes(site: Site, target: Path) -> None:
    site.files["file.gz"] = BODY
    target.parent.mkdir()
    (target.parent / "file.gz.part").write_bytes(BODY)
    (target.parent / "file.gz.part.tag").write_text('"v1"')
    download(f"{site.url}/file.gz", target, sha256=SHA, patience=SOON)
    assert target.read_bytes() == BODY


def test_a_part_longer_than_the_file_is_thrown_away(site: Site, target: Path) -> None:
    site.files["file.gz"] = BODY
    target.parent.mkdir()
    (target.parent / "file.gz.part").write_bytes(BODY + b"more")
    (target.parent / "file.gz.part.tag").write_text('"v1"')
    download(f"{site.url}/file.gz", target, sha256=SHA, patience=SOON)
    assert target.read_bytes() == BODY


@pytest.mark.parametrize("flaw", ["no ranges", "no tag", "wrong part"])
def test_download_restarts_if_server_cannot_resume(site: Site, target: Path, flaw: str) -> None:
    site.files["file.gz"] = BODY
    site.cut_after = [300_000]
    site.ranges = flaw != "no ranges"
    site.tag = None if flaw == "no tag" else site.tag
    site.shift = 7 if flaw == "wrong part" else 0
    download(f"{site.url}/file.gz", target, sha256=SHA, patience=SOON)
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


def test_busy_server_is_retried(site: Site, target: Path) -> None:
    site.files["file.gz"], site.answers = BODY, [503]
    download(f"{site.url}/file.gz", target, patience=SOON)
    assert target.read_bytes() == BODY


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


def test_wrong_bytes_are_removed(site: Site, target: Path) -> None:
    site.files["file.gz"] = BODY[:-1] + b"!"
    with pytest.raises(DownloadError, match=f"not {SHA}. It was removed"):
        download(f"{site.url}/file.gz", target, sha256=SHA, patience=SOON)
    assert names(target) == []


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


def test_a_place_that_cannot_be_written_is_named(site: Site, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where a folder should be")
    with pytest.raises(DownloadError, match=r"cannot write to .*taken"):
        download(f"{site.url}/file.gz", tmp_path / "taken" / "file.gz", patience=SOON)


def test_two_downloads_of_one_file_do_not_mix(site: Site, target: Path) -> None:
    target.parent.mkdir()
    lock = WriteLock(target)
    try:
        with pytest.raises(OptionError, match="being written by another process"):
            download(f"{site.url}/file.gz", target, patience=SOON)
    finally:
        lock.release()


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://example/file"])
def test_only_http_urls_are_opened(url: str, target: Path) -> None:
    with pytest.raises(DownloadError, match="no address of the web"):
        download(url, target)


def test_a_file_that_changed_after_its_download_is_refused(site: Site, target: Path) -> None:
    site.files["file.gz"] = BODY
    download(f"{site.url}/file.gz", target, patience=SOON)
    verify(target)
    target.write_bytes(BODY + b"rot")
    with pytest.raises(InputError, match=r"is not what was downloaded.*file\.gz\.sha256"):
        verify(target)


def test_manually_added_file_has_no_checksum(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(BODY)
    verify(tmp_path / "file")
    assert checksum(tmp_path / "file") == SHA


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
