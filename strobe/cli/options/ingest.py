"""The options of ``strobe ingest``, grouped as its help shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strobe.cli.options.clock import CUT_PANEL, EDGES_PANEL

_COLUMNS = "Columns"
_NODES = "Node table"
_FILES = "Files and bad rows"

SourcesArgument = Annotated[list[Path], typer.Argument(help="Files: CSV, TSV, plain text (also .gz), Parquet, NPZ.")]
ToOption = Annotated[Path, typer.Option("--out", "-o", help="The directory to write the graph to.")]
SrcOption = Annotated[str, typer.Option(help="Source column, by name or position from 0.", rich_help_panel=_COLUMNS)]
DstOption = Annotated[str, typer.Option(help="Destination column.", rich_help_panel=_COLUMNS)]
TimeOption = Annotated[str | None, typer.Option(help="Time column.", rich_help_panel=_COLUMNS)]
WeightOption = Annotated[str | None, typer.Option(help="Weight column.", rich_help_panel=_COLUMNS)]
IdsOption = Annotated[
    str | None,
    typer.Option(help="integer or string. \\[default: inferred from the first rows]", rich_help_panel=_COLUMNS),
]
TimeUnitOption = Annotated[
    str | None,
    typer.Option(help="iso, s, ms or number. \\[default: inferred from the first rows]", rich_help_panel=_COLUMNS),
]
ByColumnOption = Annotated[
    str | None, typer.Option("--by-column", help="A snapshot per value of this column.", rich_help_panel=CUT_PANEL)
]
PerFileOption = Annotated[
    bool, typer.Option("--per-file", help="A snapshot per file, in the order given.", rich_help_panel=CUT_PANEL)
]
MaxSnapshotsOption = Annotated[
    int,
    typer.Option(
        "--max-snapshots",
        metavar="N",
        help="Fail with more: one wrong time among the events makes millions of empty snapshots.",
        rich_help_panel=CUT_PANEL,
    ),
]
UndirectedOption = Annotated[
    bool, typer.Option("--undirected", help="Edges have no direction.", rich_help_panel=EDGES_PANEL)
]
RepeatedOption = Annotated[
    str | None,
    typer.Option(
        help="How events of one edge within a snapshot are combined: count, sum, last or keep. "
        "\\[default: sum with weights, else count]",
        rich_help_panel=EDGES_PANEL,
    ),
]
SelfLoopsOption = Annotated[bool, typer.Option(help="Keep self-loops.", rich_help_panel=EDGES_PANEL)]
NodesOption = Annotated[
    Path | None, typer.Option(help="A table with features and labels of nodes.", rich_help_panel=_NODES)
]
NodeIdOption = Annotated[str, typer.Option(help="Its id column.", rich_help_panel=_NODES)]
FeaturesOption = Annotated[
    str | None, typer.Option(help="Its feature columns, separated by commas.", rich_help_panel=_NODES)
]
LabelOption = Annotated[str | None, typer.Option(help="Its label column.", rich_help_panel=_NODES)]
NodeTimeOption = Annotated[
    str | None,
    typer.Option(help="Its time column: a row is valid until the node's next row.", rich_help_panel=_NODES),
]
FillMissingOption = Annotated[
    bool, typer.Option("--fill-missing", help="Zeros for nodes without a row.", rich_help_panel=_NODES)
]
DelimiterOption = Annotated[str | None, typer.Option(help="\\[default: inferred]", rich_help_panel=_FILES)]
HeaderOption = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="\\[default: yes if columns are given by name]", rich_help_panel=_FILES),
]
EncodingOption = Annotated[str, typer.Option(help="The encoding of text files.", rich_help_panel=_FILES)]
SkipBadRowsOption = Annotated[
    bool,
    typer.Option("--skip-bad-rows", help="Skip bad rows, and write them to a file.", rich_help_panel=_FILES),
]
RejectsOption = Annotated[
    Path | None, typer.Option(help="That file. \\[default: OUT.rejects.csv]", rich_help_panel=_FILES)
]
MemoryOption = Annotated[
    str, typer.Option(help="Memory of the database; larger tables are spilled to disk.", rich_help_panel=_FILES)
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace an existing graph.", rich_help_panel=_FILES)
]
AsJsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one line of JSON.")]


def parse_column(text: str) -> str | int:
    """Parse a column: a position if the text is a number, else a name."""
    return int(text) if text.isascii() and text.isdigit() else text
