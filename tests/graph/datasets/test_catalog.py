from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strobe.errors import OptionError, UnknownNameError
from strobe.graph import Static, open_graph
from strobe.graph.datasets import DATASETS, TASKS, find, load
from strobe.graph.datasets import folder as folders
from strobe.graph.datasets.dataset import DatasetOptions
from strobe.graph.datasets.static import growth_shares
from strobe.graph.ingest import Every

ROWS = "1 2 1100000000\n2 1 1100700000\n1 2 1100700001\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "collegemsg"
    folder.mkdir(parents=True)
    (folder / "CollegeMsg.txt").write_text(ROWS)
    return tmp_path / "data"


def test_every_set_has_metadata_and_files() -> None:
    for name, dataset in DATASETS.items():
        assert dataset.name == name
        assert all((dataset.title, dataset.citation, dataset.licence, dataset.files)), name
        urls = [dataset.source, *(url for file in dataset.files for url in file.urls)]
        assert all(re.fullmatch(r"https?://[\w.-]+/\S+", url) for url in urls), name
        assert set(dataset.tasks) <= set(TASKS), name
        assert min(dataset.nodes, dataset.edges, dataset.snapshots) >= 1, name
        assert dataset.loader.takes <= set(DatasetOptions.__dataclass_fields__), name


def test_a_name_is_found_however_it_is_spelled() -> None:
    for spelled in ("sx-mathoverflow", "sx_mathoverflow", "SX-MathOverflow"):
        assert find(spelled).name == "sx-mathoverflow"
    with pytest.raises(UnknownNameError, match="no data set named 'colegemsg'; did you mean 'collegemsg'"):
        find("colegemsg")


def test_a_graph_remembers_where_it_comes_from(root: Path, tmp_path: Path) -> None:
    stages: list[str] = []
    graph = load("collegemsg", data_dir=root, out=tmp_path / "out", on_stage=lambda stage, *_: stages.append(stage))
    info = open_graph(tmp_path / "out").info
    assert graph.info == info
    assert info["dataset"]["name"] == "collegemsg"
    assert info["dataset"]["source"] == "https://snap.stanford.edu/data/CollegeMsg.html"
    assert info["dataset"]["licence"]
    assert (info["rows"], info["distinct_pairs"]) == (3, 2)
    assert (info["first_time"], info["last_time"]) == ("2004-11-09T11:33:20", "2004-11-17T14:00:01")
    assert "writing snapshots" in stages


def test_an_existing_graph_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(OptionError, match="exists already"):
        load("collegemsg", data_dir=tmp_path / "nothing", out=tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "choice", "said"),
    [
        ("collegemsg", {"seed": 1}, "seed cannot be chosen for collegemsg; what can be: clock, life"),
        ("cora-t", {"life": 2}, r"life cannot be chosen for cora-t .* what can be: clock, seed"),
        ("cora-t", {"seed": -1}, "seed must be a whole number of at least 0, not -1"),
        ("collegemsg", {"presence": "sometimes"}, "presence must be one of active, seen, always"),
        ("collegemsg", {"repeated": "twice"}, "repeated must be one of"),
        ("collegemsg", {"life": 0}, "at least one snapshot"),
    ],
)
def test_invalid_choices_are_refused_before_downloading(
    name: str, choice: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "fetch", lambda *_: pytest.fail("files were fetched"))
    with pytest.raises(OptionError, match=said):
        load(name, data_dir=tmp_path, **choice)


def test_simulated_cora_grows_to_the_static_graph(tmp_path: Path) -> None:
    folder = tmp_path / "planetoid"
    folder.mkdir()
    edges = np.array([(u, v) for u in range(10) for v in range(u + 1, 10)], np.int32)
    np.savez(
        folder / "cora.npz",
        edges=edges,
        labels=np.arange(10, dtype=np.int16) % 3,
        num_nodes=10,
        x_data=np.ones(2, np.float32),
        x_indices=np.array([3, 1]),
        x_indptr=np.array([0, 1, 2] + [2] * 8),
        x_shape=np.array([10, 4]),
        train_idx=np.array([0]),
        val_idx=np.array([1]),
        test_idx=np.array([2]),
    )
    static, grown = load("cora", data_dir=tmp_path), load("cora-t", data_dir=tmp_path)
    assert (len(static), len(grown)) == (1, 50)
    assert grown[49] == static[0]
    assert [snapshot.num_edges for snapshot in grown] == [round(float(share) * 45) for share in growth_shares(50, 0.02)]
    assert grown.info["split"] == {"train": [0], "val": [1], "test": [2]}
    assert isinstance(grown.features, Static)
    assert grown.features.values[0].tolist() == [0, 0, 0, 1]
    assert load("cora-t", data_dir=tmp_path, seed=1) != grown


def test_files_of_commits_are_labelled_as_chosen(tmp_path: Path) -> None:
    folder = tmp_path / "rust_git"
    folder.mkdir()
    (folder / "file_ext_names.txt").write_text(".rs\n.md\n")
    (folder / "file_dir_names.txt").write_text("src\n")
    np.savez(
        folder / "rust_git.npz",
        time=np.array([1.3e9, 1.4e9]).astype(np.int64),
        author_id=np.array([0, 1], np.int32),
        file_id=np.array([1, 0], np.int32),
        num_authors=2,
        num_files=2,
        file_ext=np.array([1, 0], np.int16),
        file_dir=np.array([0, 0], np.int16),
    )
    by_ext = load("rust_git", data_dir=tmp_path, clock=Every(10**9))
    assert by_ext.info["classes"] == [".md", ".rs"]
    assert isinstance(by_ext.labels, Static)
    assert by_ext.labels.values.tolist() == [-1, -1, 0, 1]
    by_dir = load("rust_git", data_dir=tmp_path, clock=Every(10**9), label="file_dir")
    assert by_dir.info["classes"] == ["src"]
    with pytest.raises(OptionError, match="the label must be one of file_ext, file_dir"):
        load("rust_git", data_dir=tmp_path, label="author")
