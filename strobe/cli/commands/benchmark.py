"""``strobe benchmark``: published evaluation protocols by name."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from strobe.cli.console import out, print_json, print_note, print_result, stage_bar
from strobe.cli.options.groups import keyword, option, with_parameters
from strobe.cli.options.run import AsJsonOption, DataDirOption
from strobe.errors import InputError
from strobe.format import align_columns, duration, percent, pluralize
from strobe.io.atomic import write_json
from strobe.protocols import ProtocolRequest, ProtocolResult, PublishedRow, find_protocol, list_protocols
from strobe.protocols.base import SEEDS, Protocol

_REGISTER = "A Python file that registers protocols of your own; give it before NAME."


class _Protocols(TyperGroup):
    """A command per registered protocol, also of those that ``--register`` registers."""

    def list_commands(self, ctx: Any) -> list[str]:
        return ["list", *(protocol.name for protocol in list_protocols())]

    def get_command(self, ctx: Any, name: str) -> Any:
        return super().get_command(ctx, name) or _make_command(find_protocol(name))


def _register(path: Path | None) -> None:
    if path is None:
        return
    if not path.is_file():
        raise InputError(f"there is no file {path}: --register takes a Python file that registers protocols")
    runpy.run_path(str(path))


benchmark = typer.Typer(
    cls=_Protocols,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


@benchmark.callback()
def _options(
    register: Annotated[
        Path | None,
        option(_REGISTER, "--register", metavar="FILE", callback=lambda path: _register(path), is_eager=True),
    ] = None,
) -> None:
    """Run published evaluation protocols, and show results beside the published ones.

    A protocol fixes data, snapshots, split, negatives, metric and loop as published; you choose the model. Models are
    trained with several seeds, next to trivial baselines:

    `strobe benchmark list`

    `strobe benchmark tgbl-wiki --help` describes the protocol

    `strobe benchmark tgbl-wiki --seeds 3 --json wiki.json`

    `strobe benchmark --register mine.py my-protocol`
    """


@benchmark.command("list")
def list_all(as_json: AsJsonOption = False) -> None:
    """List all protocols: what they measure, on which data sets, and who published them."""
    rows = [_describe(protocol) for protocol in list_protocols()]
    if as_json:
        print_json({"protocols": rows})
        return
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_row("[dim]protocol[/]", "[dim]what it measures, and on what[/]")
    for row in rows:
        lines = [row["description"], f"data: {', '.join(row['data_sets'])}; metric: {row['metric']}", row["citation"]]
        table.add_row(row["name"], Text("\n".join(lines)))
    out.print(table, highlight=False)
    print_note("\nNext: strobe benchmark NAME --help\n      strobe benchmark NAME")


def _describe(protocol: Protocol) -> dict[str, Any]:
    names = ("name", "description", "citation", "data_sets", "models", "higher_is_better", *protocol.words)
    return {name: getattr(protocol, name) for name in names}


def _make_command(protocol: Protocol) -> Any:
    """Build the command of a protocol; its help says what the protocol fixes."""

    def command(*, json: Path | None, **choices: Any) -> None:
        with stage_bar() as on_stage:
            request = ProtocolRequest(**choices, on_stage=on_stage)
            baselines = protocol.run_baselines(request)
            result = next((each for each in baselines if each.method == request.model), None) or protocol.run(request)
        published = protocol.published(request.data)
        _show(protocol, result, [each for each in baselines if each is not result], published)
        if json is not None:
            write_json(json, _to_json(protocol, result, baselines, published))
            print_note(f"written: {json}")

    one = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    one.command(protocol.name, help=_help(protocol))(with_parameters(command, _parameters(protocol)))
    return typer.main.get_command(one)


def _parameters(protocol: Protocol) -> list[Parameter]:
    models = ", ".join(protocol.models) or "every one that `strobe models` lists"
    default = protocol.models[0] if protocol.models else False
    data = option(f"The data set: {', '.join(protocol.data_sets)}.", default=protocol.data_sets[0])
    epochs = option("Most passes over the training part.", metavar="N", default="the model's")
    file = option("Also write the result, the baselines and the published rows to a file.", metavar="FILE")
    return [
        keyword("data", Annotated[str | None, data], None),
        keyword("model", Annotated[str | None, option(f"The model: {models}.", default=default)], None),
        keyword("seeds", Annotated[int, option("Runs, with the seeds 0, 1, ….", metavar="N")], SEEDS),
        keyword("epochs", Annotated[int | None, epochs], None),
        keyword("json", Annotated[Path | None, file], None),
        keyword("data_dir", DataDirOption, None),
        keyword("device", Annotated[str | None, option("cpu, cuda, cuda:1, ….", default="cpu")], None),
    ]


def _help(protocol: Protocol) -> str:
    facts = [f"- {word}: {getattr(protocol, word)}" for word in protocol.words]
    return "\n\n".join([protocol.description, "\n".join(facts), f"{protocol.citation}."])


def _to_json(
    protocol: Protocol,
    result: ProtocolResult,
    baselines: Sequence[ProtocolResult],
    published: Sequence[PublishedRow],
) -> dict[str, Any]:
    return {
        "protocol": _describe(protocol),
        "result": result.to_json(),
        "baselines": [each.to_json() for each in baselines],
        "published": [row.to_json() for row in published],
    }


def _show(
    protocol: Protocol,
    result: ProtocolResult,
    baselines: Sequence[ProtocolResult],
    published: Sequence[PublishedRow],
) -> None:
    """Print one table, best first: this run, its baselines, and published rows."""
    rows = [(result.mean, _result_cells(result, "this run"), "bold")]
    rows += [(each.mean, _result_cells(each, "baseline"), "") for each in baselines]
    rows += [(row.test, _published_cells(row), "dim") for row in published]
    rows.sort(key=lambda row: row[0], reverse=protocol.higher_is_better)
    header, *lines = align_columns(
        [["method", "from", "seeds", "validation", "test"], *(cells for _, cells, _ in rows)], text_columns=2, gap=2
    )
    seeds = pluralize(len(result.seeds), "seed")
    print_result(f"{protocol.name} on {result.data}, {protocol.metric}: {result.method}, {seeds}", "", header)
    for line, (_, _, style) in zip(lines, rows, strict=True):
        out.print(Text(line, style=style), soft_wrap=True)
    print_result("", f"coverage {percent(result.coverage)} of the test examples, {duration(result.seconds)}")
    if published:
        sources = ", ".join(dict.fromkeys(row.source for row in published))
        print_note(f"checked, second hand: published values, from {sources}")
    for row in published:
        if row.note:
            print_note(f"{row.method}: {row.note}")


def _result_cells(result: ProtocolResult, origin: str) -> list[str]:
    validation = _with_deviation(result.validation_mean, result.validation_deviation)
    return [result.method, origin, str(len(result.seeds)), validation, _with_deviation(result.mean, result.deviation)]


def _published_cells(row: PublishedRow) -> list[str]:
    validation = "–" if row.validation is None else f"{row.validation:.4f}"
    seeds = "–" if row.seeds is None else str(row.seeds)
    return [row.method, row.confidence, seeds, validation, _with_deviation(row.test, row.deviation)]


def _with_deviation(mean: float, deviation: float | None) -> str:
    return f"{mean:.4f}" if deviation is None else f"{mean:.4f} ± {deviation:.4f}"
