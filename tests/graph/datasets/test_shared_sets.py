"""Every set of the shared data directory loads with exactly the counts its README gives."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from strobe.graph import DynamicGraph
from strobe.graph.datasets import DATASETS, Dataset, dataset_dir, load, status
from strobe.graph.features import Static
from strobe.graph.storage import ArrayStorage

BESIDE = Path(__file__).parents[4] / "shared" / "data"
ROOT = Path(os.environ.get("STROBE_DATA") or BESIDE)
HERE = [name for name, dataset in DATASETS.items() if status(dataset, ROOT) == "local"]

pytestmark = pytest.mark.skipif(not HERE, reason=f"no data sets in {ROOT}: set STROBE_DATA to a directory of them")


def readme(dataset: Dataset) -> str:
    path = dataset_dir(dataset, ROOT) / "README.md"
    return path.read_text() if path.is_file() else ""


def counts_line(dataset: Dataset) -> str | None:
    """The line of counts for this very set; a simulated or partial one has none."""
    folder = dataset_dir(dataset, ROOT).name
    for name in (dataset.name.replace("-", "_"), f"{folder}/{dataset.name}"):
        found = re.search(rf"^- Counts \({re.escape(name)}, .*\): (.*)$", readme(dataset), re.MULTILINE)
        if found:
            return found[1]
    return None


def check_line(dataset: Dataset) -> str:
    found = re.search(r"^- Check against published counts: (.*)$", readme(dataset), re.MULTILINE)
    assert found
    return found[1]


def number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    assert found, f"{pattern!r} not in {text!r}"
    return int(found[1])


def same_time(text: str, found: int | float | str) -> bool:
    """Whether a time of the README is the one found: a number, or a date in any precision."""
    if isinstance(found, str):
        return found.startswith(text) or found[:10].replace("-", "") == text
    return float(text) == found


COUNTED = [name for name in HERE if counts_line(DATASETS[name])]
SIGNAL_SETS = [DATASETS[name] for name in HERE if DATASETS[name].tasks == ("node regression",)]
STATIC_SIGNALS = ("chickenpox", "pedalme", "montevideo_bus", "metr_la_week")


@pytest.fixture(scope="module")
def loaded() -> dict[str, DynamicGraph]:
    return {}


def default(name: str, loaded: dict[str, DynamicGraph]) -> DynamicGraph:
    if name not in loaded:
        loaded[name] = load(name, data_dir=ROOT)
    return loaded[name]


@pytest.mark.parametrize("name", HERE)
def test_counts_are_those_of_the_catalog_and_the_readme(name: str, loaded: dict[str, DynamicGraph]) -> None:
    dataset, graph = DATASETS[name], default(name, loaded)
    assert (graph.num_nodes, graph.info["rows"], len(graph)) == (dataset.nodes, dataset.edges, dataset.snapshots)
    assert graph.info["dataset"]["name"] == name
    assert graph.features is not None
    assert (graph.labels is not None) == (dataset.tasks[0] == "node classification" or dataset in SIGNAL_SETS)
    if (line := counts_line(dataset)) is None:
        return
    assert graph.num_nodes == number(r"nodes (\d+)", line)
    assert graph.info["rows"] == number(r"events/edges (\d+)", line)
    assert graph.info["distinct_pairs"] == number(r"distinct pairs (\d+)", line)
    if times := re.search(r"time (\S+)\.\.(\S+),", line):
        assert same_time(times[1], graph.info["first_time"])
        assert same_time(times[2], graph.info["last_time"])
    else:
        assert "time static" in line
        assert len(graph) == 1
    if fixed := re.search(r"snapshots/timestamps (\d+)", line):
        assert len(graph) == int(fixed[1])
    if graph.num_edges != graph.info["rows"]:  # repeated events were merged
        assert "repeated" in dataset.loader.takes
        if dataset.edges < 100_000:  # others take seconds
            assert load(name, data_dir=ROOT, repeated="keep").num_edges == dataset.edges


@pytest.mark.parametrize("name", [dataset.name for dataset in SIGNAL_SETS])
def test_signals_have_the_published_counts(name: str, loaded: dict[str, DynamicGraph]) -> None:
    """Their READMEs give counts in prose."""
    graph, line = default(name, loaded), check_line(DATASETS[name])
    assert graph.num_nodes == number(r"(\d+) (?:nodes|regions)", line)
    if variant := re.search(r"_([a-z]{2}\d+)$", name):
        steps, edges = (int(text) for text in re.findall(rf"{variant[1].upper()} (\d+)\D+ (\d+)", line)[0])
    else:
        steps = number(r"(\d+) (?:weeks|hours|steps|days)", line)
        edges = number(r"(\d+) (?:edges|non-zero weights|snapshot-edges)", line)
    assert len(graph) == steps
    assert (graph[0].num_edges if name in STATIC_SIGNALS else graph.num_edges) == edges


@pytest.mark.parametrize("name", sorted({"uci_dysat", "enron_dysat"} & set(HERE)))
def test_unique_edges_per_snapshot_are_those_of_the_readme(name: str, loaded: dict[str, DynamicGraph]) -> None:
    dataset, graph = DATASETS[name], default(name, loaded)
    assert graph.num_edges == number(r"summed over snapshots = (\d+)", readme(dataset))
    per_snapshot = (dataset_dir(dataset, ROOT) / "nodes_per_snapshot.csv").read_text().split()[1:]
    assert [f"{snapshot.t},{snapshot.num_nodes}" for snapshot in graph] == per_snapshot


@pytest.mark.parametrize("name", sorted({"cora", "citeseer", "pubmed", "pubmed_temporal"} & set(HERE)))
def test_features_and_classes_are_those_of_the_readme(name: str, loaded: dict[str, DynamicGraph]) -> None:
    graph, line = default(name, loaded), counts_line(DATASETS[name]) or ""
    shape = re.search(r"features \[(\d+), (\d+)\]", line)
    classes = re.search(r"classes (\d+)|(\d+) classes", line)
    assert shape
    assert classes
    assert isinstance(graph.features, Static)
    assert isinstance(graph.labels, Static)
    assert graph.features.values.shape == (int(shape[1]), int(shape[2]))
    labels = graph.labels.values
    assert np.unique(labels[labels >= 0]).size == int(classes[1] or classes[2])


@pytest.mark.skipif("dblp_coauthor" not in HERE, reason="no dblp_coauthor")
def test_dblp_labels_are_those_of_the_readme(loaded: dict[str, DynamicGraph]) -> None:
    graph, line = default("dblp_coauthor", loaded), counts_line(DATASETS["dblp_coauthor"]) or ""
    assert isinstance(graph.labels, Static)
    labels = graph.labels.values
    assert np.unique(labels).size == number(r"(\d+) labels", line)
    assert (labels >= 0).sum() == number(r"(\d+) labelled nodes", line)


@pytest.mark.skipif("cora_temporal" not in HERE, reason="no cora_temporal")
def test_cora_leaves_out_the_rows_the_readme_says(loaded: dict[str, DynamicGraph]) -> None:
    graph, text = default("cora_temporal", loaded), readme(DATASETS["cora_temporal"])
    assert graph.info["rows_without_year"] == number(r"(\d+) rows with missing year dropped", text)
    assert len(graph.info["classes"]) == number(r"id -> (\d+) top-level classes", text)


@pytest.mark.skipif("rust_git" not in HERE, reason="no rust_git")
def test_rust_git_has_the_months_authors_and_files_of_the_readme(loaded: dict[str, DynamicGraph]) -> None:
    graph, line = default("rust_git", loaded), counts_line(DATASETS["rust_git"]) or ""
    assert len(graph) == number(r"(\d+) months", line)
    authors, files = number(r"authors (\d+)", line), number(r"files (\d+)", line)
    assert (graph.info["num_authors"], graph.info["num_files"]) == (authors, files)
    assert isinstance(graph.labels, Static)
    assert (graph.labels.values[:authors] == -1).all()
    assert (graph.labels.values[authors:] >= 0).all()


@pytest.mark.parametrize("name", sorted({"bitcoin_otc", "bitcoin_alpha"} & set(HERE)))
def test_ratings_span_the_range_of_the_readme(name: str, loaded: dict[str, DynamicGraph]) -> None:
    storage = default(name, loaded).storage
    assert isinstance(storage, ArrayStorage)
    weights = storage.weight
    span = re.search(r"rating (-?\d+)\.\.(\d+)", counts_line(DATASETS[name]) or "")
    assert span
    assert weights is not None
    assert (weights.min(), weights.max()) == (int(span[1]), int(span[2]))


def test_every_folder_is_read_by_a_set_and_has_its_counts_compared() -> None:
    described = {path.parent.name for path in ROOT.glob("*/README.md")}
    compared = {dataset_dir(dataset, ROOT).name for dataset in (*(DATASETS[name] for name in COUNTED), *SIGNAL_SETS)}
    assert described <= compared
