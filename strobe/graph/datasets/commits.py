"""Who touched which file: the history of a repository as a bipartite stream of events."""

from __future__ import annotations

import numpy as np

from strobe.errors import OptionError
from strobe.graph.datasets.dataset import CUTTING, DataSet, File, Loader, Request
from strobe.graph.datasets.folder import open_text
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.ingest import Calendar, NodeTable

LABELS = ("file_ext", "file_dir")


class Commits(Loader):
    """Author touches file; nodes are the authors, then the files.

    Files are labelled with their extension (``label="file_ext"``) or their directory (``"file_dir"``); authors
    are unlabelled. Weights count an author's commits to a file.
    """

    takes = CUTTING | {"label"}

    def load(self, request: Request) -> DynamicGraph:
        label = request.choices.label or LABELS[0]
        if label not in LABELS:
            raise OptionError(f"the label must be one of {', '.join(LABELS)}, not {label!r}")
        with open_text(request.files[f"{label}_names.txt.gz"]) as names:
            classes = np.array(names.read().splitlines(), dtype=str)
        with np.load(request.files["rust_git.npz"]) as file:
            num_authors, num_files = int(file["num_authors"]), int(file["num_files"])
            columns = {"author": file["author_id"], "file": file["file_id"] + num_authors, "time": file["time"]}
            labels = {"id": np.arange(num_authors, num_authors + num_files), "label": classes[file[label]]}
        return request.ingest(
            columns,
            src="author",
            dst="file",
            time="time",
            clock=Calendar("month"),
            renumber=False,
            num_nodes=num_authors + num_files,
            nodes=NodeTable(source=labels, id="id", label="label"),
            info={"num_authors": num_authors, "num_files": num_files, "label": label},
        )


SETS: tuple[DataSet, ...] = (
    DataSet(
        name="rust_git",
        title="Authors and files of the Rust repository, by month",
        tasks=("node classification", "node regression", "link prediction"),
        source="https://github.com/rust-lang/rust",
        citation="derived from the repository's history",
        licence="derived facts from a repository under MIT / Apache-2.0",
        files=tuple(File(path=path) for path in ("rust_git.npz", *(f"{label}_names.txt.gz" for label in LABELS))),
        loader=Commits(),
        nodes=186990,
        edges=1427181,
        snapshots=195,
    ),
)
