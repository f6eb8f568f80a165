"""Files in the form of DySAT's data sets, and the graphs they hold."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import numpy.typing as npt

import strobe
from strobe.graph import DynamicGraph

Links = npt.NDArray[np.int64]


def random_links(seed: int, num_snapshots: int = 5, num_nodes: int = 24, num_links: int = 40) -> list[Links]:
    """Undirected links of snapshots over a growing set of nodes, self-loops and repeated links included."""
    rng = np.random.default_rng(seed)
    found = []
    for t in range(num_snapshots):
        seen = num_nodes - 2 * (num_snapshots - 1 - t)
        links = rng.integers(0, seen, (num_links, 2))
        links[:seen, 0] = np.arange(min(seen, num_links))  # every node has a link: ids are cumulative
        found.append(links)
    return found


def write_links(folder: Path, links: list[Links], name: str = "enron_dysat") -> Path:
    """Write links as the file of a data set."""
    (folder / name).mkdir(parents=True)
    rows = [f"{t},{u},{v},{1000 * t + k}\n" for t, each in enumerate(links) for k, (u, v) in enumerate(each)]
    with gzip.open(folder / name / "events.csv.gz", "wt") as file:
        file.writelines(["snapshot,src,dst,unix_time\n", *rows])
    return folder


def load_links(folder: Path, links: list[Links], name: str = "enron_dysat") -> DynamicGraph:
    """Write links and load them as a user would."""
    return strobe.load(name, data_dir=write_links(folder, links, name))
