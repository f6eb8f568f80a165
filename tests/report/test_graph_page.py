from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from strobe.errors import MissingPackageError, OptionError
from strobe.format import file_size, format_short, percent
from strobe.graph import DynamicGraph, from_edges
from strobe.graph.stats import describe
from strobe.report.graph_page import bytes_caption, graph_page, load_caption
from strobe.report.page import write_page

EVIL = "</script><img src=https://example.org/x onerror=alert(1)>"


class Reader(HTMLParser):
    """Collects what a browser would load, the tags, and the visible text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.scripts: list[str] = []
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._open.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data")]

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["script"]:
            self.scripts.append(data)
        elif self._open[-1:] != ["style"]:
            self.text += data

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            del self._open[len(self._open) - 1 - self._open[::-1].index(tag) :]


def small(times: list[str] | None = None) -> DynamicGraph:
    return from_edges(
        [[[0, 0, 1], [1, 2, 2]], [[0, 1], [1, 2]], [[0, 1, 2], [1, 2, 3]]],
        nodes=[[0, 1, 2], [0, 1, 2], [0, 1, 2, 3]],
        times=times,
    )


@pytest.fixture(scope="module")
def page() -> str:
    return graph_page(describe(small()), "tiny")


def test_the_page_loads_nothing(page: str) -> None:
    found = Reader(page)
    assert found.loads == []
    assert not re.search(r"@import|url\(", page.split("<style>")[1].split("</style>")[0])


def test_plotly_is_inlined_once(page: str) -> None:
    libraries = [script for script in Reader(page).scripts if len(script) > 1_000_000]
    assert len(libraries) == 1


def test_the_page_tells_the_numbers(page: str) -> None:
    text = Reader(page).text
    for number in ("Nodes4", "Cells10", "Edges8", "Largest degree2"):
        assert number in text
    assert "Consecutive snapshots share 67% of their edges" in text


def test_every_plot_has_words_for_those_who_cannot_see_it(page: str) -> None:
    assert page.count("<figure") == page.count("role='img' aria-label='") == page.count("<figcaption") == 7
    assert '<html lang="en">' in page


def test_the_same_graph_gives_the_same_page(page: str) -> None:
    assert graph_page(describe(small()), "tiny") == page


def test_texts_of_users_stay_texts() -> None:
    page = graph_page(describe(small([EVIL, f"{EVIL}1", f"{EVIL}2"])), EVIL)
    found = Reader(page)
    assert "img" not in found.tags
    assert found.loads == []
    assert EVIL in found.text
    assert all("onerror" not in script or "</script>" not in script for script in found.scripts)


@pytest.mark.parametrize(
    "graph",
    [from_edges([]), from_edges([[[], []]], num_nodes=2), from_edges([[[0], [0]]]), from_edges([[[], []]] * 2)],
    ids=["no snapshots", "no edges", "one node", "nothing at all"],
)
def test_awkward_graphs_have_a_page(graph: DynamicGraph) -> None:
    page = graph_page(describe(graph), "awkward")
    assert "NaN" not in Reader(page).text
    assert "Snapshots" in page


def test_without_plotly_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(MissingPackageError, match="pip install plotly"):
        graph_page(describe(small()), "tiny")


def test_a_failed_write_leaves_the_old_page(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    write_page(target, "<!doctype html>old")
    with pytest.raises(UnicodeEncodeError):
        write_page(target, "<!doctype html>\ud800")
    assert target.read_text() == "<!doctype html>old"
    assert list(tmp_path.iterdir()) == [target]


def test_places_that_are_no_pages_are_refused(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(json.dumps([1, 2]))
    for target, reason in (
        (tmp_path, "is a directory"),
        (tmp_path / "missing" / "page.html", "no directory"),
        (tmp_path / "data.csv", "not an HTML page"),
        (Path("/dev/null"), "not an HTML page"),
    ):
        with pytest.raises(OptionError, match=reason):
            write_page(target, "<!doctype html>")
    assert (tmp_path / "data.csv").read_text() == "[1, 2]"


def test_numbers_for_people() -> None:
    assert [percent(share) for share in (0, 0.0001, 0.034, 0.97, 0.9999, 1, 1.65)] == [
        "0%", "<0.1%", "3.4%", "97%", "99.9%", "100%", "165%",
    ]  # fmt: skip
    assert [format_short(number) for number in (0, 12345, 11_965_533, 2.5e9)] == ["0", "12,345", "11.97M", "2.5G"]
    assert [file_size(size) for size in (0, 1023, 1536, 3 << 30)] == ["0 B", "1023 B", "1.5 KiB", "3.0 GiB"]


def rings(*sizes: int) -> DynamicGraph:
    """A ring of each size, all over the same nodes."""
    edges = [[np.arange(size), (np.arange(size) + 1) % size] for size in sizes]
    return from_edges(edges, num_nodes=max(sizes))


STILL = rings(*[100] * 12)
NEARLY_STILL = from_edges([[np.append(np.arange(100), t), np.append(np.arange(1, 101), t + 20)] for t in range(12)])
GROWING = rings(*range(10, 130, 10))
SHUFFLED = from_edges([np.random.default_rng(t).integers(0, 500, (2, 400)) for t in range(4)], num_nodes=500)
STAR = from_edges([[np.arange(1, 200), np.zeros(199, int)]])


def test_bytes_caption_compares_full_and_delta() -> None:
    assert bytes_caption(describe(NEARLY_STILL)).endswith("as deltas: 10% of the bytes.")
    assert bytes_caption(describe(STILL)).endswith("as deltas: hardly less.")  # stored once either way
    assert bytes_caption(describe(SHUFFLED)).endswith("so much changes that deltas are the larger.")


def test_load_caption_names_the_heaviest_share() -> None:
    assert load_caption(describe(STILL)).endswith("four parts of equally many snapshots have nearly equal work.")
    assert load_caption(describe(GROWING)).endswith("the heaviest has 1.24 times its share of the work.")
