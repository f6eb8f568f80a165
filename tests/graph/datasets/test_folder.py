from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import platformdirs
import pytest

from strobe.errors import DownloadError, InputError
from strobe.graph.datasets import DATASETS, Dataset, DatasetFile, data_dir, dataset_dir, status
from strobe.graph.datasets.folder import fetch, open_text
from tests.support.web import Site

ROWS = b"1 2 10\n2 3 20\n"


def made(*files: DatasetFile, name: str = "my-set") -> Dataset:
    return replace(DATASETS["collegemsg"], name=name, files=files, folder="")


def zipped(**members: bytes) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, body in members.items():
            archive.writestr(name, body)
    return held.getvalue()


def test_the_data_directory_is_the_option_then_the_variable_then_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STROBE_DATA", "/from/variable")
    assert data_dir("/from/option") == Path("/from/option")
    assert data_dir() == Path("/from/variable")
    monkeypatch.setenv("STROBE_DATA", "")
    assert data_dir() == Path(platformdirs.user_cache_dir("strobe")) / "data"


def test_a_folder_may_be_spelled_with_either_dash(tmp_path: Path) -> None:
    dataset = made(name="my-set")
    assert dataset_dir(dataset, tmp_path) == tmp_path / "my-set"
    (tmp_path / "my_set").mkdir()
    assert dataset_dir(dataset, tmp_path) == tmp_path / "my_set"


@pytest.mark.parametrize(("asked", "there"), [("a.txt", "a.txt.gz"), ("a.txt.gz", "a.txt"), ("a.txt", "a.txt")])
def test_a_file_is_found_packed_or_not(asked: str, there: str, tmp_path: Path) -> None:
    folder = tmp_path / "my-set"
    folder.mkdir()
    (folder / there).write_bytes(gzip.compress(ROWS) if there.endswith(".gz") else ROWS)
    dataset = made(DatasetFile(path=asked))
    assert status(dataset, tmp_path) == "local"
    [path] = fetch(dataset, tmp_path).values()
    with open_text(path) as file:
        assert file.read() == ROWS.decode()


def test_a_missing_file_is_downloaded_once(site: Site, tmp_path: Path) -> None:
    site.files["a.txt"] = ROWS
    dataset = made(DatasetFile(path="a.txt", urls=(f"{site.url}/a.txt",)))
    assert status(dataset, tmp_path) == "downloadable"
    stages: list[str] = []
    for _ in range(2):
        found = fetch(dataset, tmp_path, lambda stage, done, total: stages.append(stage))
        assert found["a.txt"].read_bytes() == ROWS
    assert set(stages) == {"downloading a.txt, MiB"}
    assert len(site.asked) == 1


def test_the_next_address_is_tried_when_one_fails(site: Site, tmp_path: Path) -> None:
    dataset = made(DatasetFile(path="a.txt", urls=(f"{site.url}/one/a.txt", f"{site.url}/two/a.txt")))
    with pytest.raises(DownloadError, match=r"(?s)one/a\.txt answered 404.*two/a\.txt answered 404"):
        fetch(dataset, tmp_path)
    site.files["two/a.txt"] = ROWS
    assert fetch(dataset, tmp_path)["a.txt"].read_bytes() == ROWS


def test_files_are_taken_out_of_a_zip_by_the_end_of_their_path(site: Site, tmp_path: Path) -> None:
    site.files["all.zip"] = zipped(**{"top/raw/a.txt": ROWS, "top/raw/b.txt": b"b", "top/readme": b""})
    urls = (f"{site.url}/all.zip",)
    dataset = made(*(DatasetFile(path=f"raw/{name}.txt", urls=urls, archive="all.zip") for name in "ab"))
    found = fetch(dataset, tmp_path)
    assert found["raw/a.txt"] == tmp_path / "my-set" / "raw" / "a.txt"
    assert (found["raw/a.txt"].read_bytes(), found["raw/b.txt"].read_bytes()) == (ROWS, b"b")
    assert len(site.asked) == 1


def test_manually_added_archive_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "my-set").mkdir()
    with tarfile.open(tmp_path / "my-set" / "all.tar.bz2", "w:bz2") as archive:
        member = tarfile.TarInfo("net/out.net")
        member.size = len(ROWS)
        archive.addfile(member, io.BytesIO(ROWS))
    dataset = made(DatasetFile(path="out.net", archive="all.tar.bz2"))
    assert status(dataset, tmp_path) == "local"
    assert fetch(dataset, tmp_path)["out.net"].read_bytes() == ROWS


@pytest.mark.parametrize(
    ("body", "said"),
    [(zipped(other=b""), "has no a.txt: it holds other"), (b"PK not a zip", "is damaged"), (b"", "is damaged")],
)
def test_an_archive_without_the_file_leaves_nothing_half_done(body: bytes, said: str, tmp_path: Path) -> None:
    folder = tmp_path / "my-set"
    folder.mkdir()
    (folder / "all.zip").write_bytes(body)
    with pytest.raises(InputError, match=said):
        fetch(made(DatasetFile(path="a.txt", archive="all.zip")), tmp_path)
    assert [path.name for path in folder.iterdir()] == ["all.zip"]


def test_files_without_urls_must_be_added_manually(tmp_path: Path) -> None:
    dataset = made(DatasetFile(path="a.txt"), DatasetFile(path="b.txt", urls=("https://data.example/b.txt",)))
    assert status(dataset, tmp_path) == "manual"
    with pytest.raises(DownloadError, match=r"(?s)Put by hand:\n  .*my-set/a\.txt.*--data-dir or STROBE_DATA"):
        fetch(dataset, tmp_path)
    assert not (tmp_path / "my-set").exists()


def test_a_download_that_rotted_is_refused(site: Site, tmp_path: Path) -> None:
    site.files["a.txt"] = ROWS
    dataset = made(DatasetFile(path="a.txt", urls=(f"{site.url}/a.txt",)))
    fetch(dataset, tmp_path)["a.txt"].write_bytes(b"rot")
    with pytest.raises(InputError, match="is not what was downloaded"):
        fetch(dataset, tmp_path)
