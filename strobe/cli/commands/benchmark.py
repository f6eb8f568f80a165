"""``strobe benchmark``: published evaluation protocols by name."""

from __future__ import annotations

import runpy
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
from strobe.graph.progress import OnStage
from strobe.io.atomic import write_json
from strobe.protocols.base import (
    SEEDS,
    Protocol,
    ProtocolRequest,
    ProtocolResult,
    PublishedRow,
    find_protocol,
    list_protocols,
    protocol_names,
)

_REGISTER = "A Python file that registers protocols of your own; give it before NAME."


class _Protocols(TyperGroup):
    """A command per registered protocol, also of those that ``--register`` registers."""

    def list_commands(self, ctx: Any) -> list[str]:
        return ["list", *protocol_names()]

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
    facts = ("name", "description", "citation", "data_sets", "models", "higher_is_better", "more_metrics")
    return {name: getattr(protocol, name) for name in (*facts, *protocol.words)}


def _make_command(protocol: Protocol) -> Any:
    """Build the command of a protocol; its help says what the protocol fixes."""

    def command(*, json: Path | None, **choices: Any) -> None:
        request = ProtocolRequest(**choices)
        benchmark_run = _BenchmarkRun(protocol, request)
        try:
            with stage_bar() as on_stage:
                benchmark_run.run(on_stage)
        finally:  # also where Ctrl-C or an error ends it: what there is so far
            if benchmark_run.baselines or benchmark_run.results:
                benchmark_run.show()
                if json is not None:
                    write_json(json, benchmark_run.to_json())
                    print_note(f"written: {json}")

    one = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    one.command(protocol.name, help=_help(protocol))(with_parameters(command, _parameters(protocol)))
    return typer.main.get_command(one)


def _parameters(protocol: Protocol) -> list[Parameter]:
    models = _list_models(protocol.models) or "every one that `strobe models` lists"
    default = protocol.models[0] if protocol.models else False
    data = option(f"The data set: {', '.join(protocol.data_sets)}.", default=protocol.data_sets[0])
    meaning = f"{protocol.epochs[0].upper()}{protocol.epochs[1:]}."
    epochs = option(meaning, metavar="N", default="the protocol's")
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


def _list_models(models: Sequence[str]) -> str:
    """Names of models, those with equal endings together: ``gcn, sage, each also with +live; edgebank``."""
    endings: dict[str, list[str]] = {}
    for model in models:
        name, plus, ending = model.partition("+")
        endings.setdefault(name, []).append(plus + ending)
    names: dict[tuple[str, ...], list[str]] = {}
    for name, found in endings.items():
        names.setdefault(tuple(found) if "" in found else (), []).extend(
            [name] if "" in found else map(name.__add__, found)
        )
    parts = []
    for shared, same in names.items():
        more = [ending for ending in shared if ending]
        parts.append(", ".join(same) + (f", each also with {', '.join(more)}" if more else ""))
    return "; ".join(parts)


def _help(protocol: Protocol) -> str:
    facts = [f"- {word}: {getattr(protocol, word)}" for word in protocol.words]
    if protocol.more_metrics:
        facts[-1] += f"; also {', '.join(protocol.more_metrics)}"
    example = (
        f"`strobe benchmark {protocol.name} --seeds 1` runs the default model once. Ctrl-C shows what is finished."
    )
    return "\n\n".join([protocol.description, "\n".join(facts), f"{protocol.citation}.", example])


@dataclass
class _BenchmarkRun:
    """What a run has found so far.

    Attributes:
        protocol, request: what is run.
        baselines: results of the baselines but the chosen one.
        results: of the chosen method, a seed each.
        wanted: results there will be.
    """

    protocol: Protocol
    request: ProtocolRequest
    baselines: list[ProtocolResult] = field(default_factory=list)
    results: list[ProtocolResult] = field(default_factory=list)
    wanted: int = 0

    def run(self, on_stage: OnStage) -> None:
        """Run baselines, then one seed after the other."""
        request = replace(self.request, on_stage=on_stage)
        if self.protocol.models:
            self.protocol.choose_model(request.model)
        baselines = self.protocol.run_baselines(request)
        self.baselines = [each for each in baselines if each.method != request.model]
        self.results = [each for each in baselines if each.method == request.model]
        self.wanted = len(self.results) or request.seeds
        if not self.results:
            for result in self.protocol.run_each_seed(request):
                self.results.append(result)

    @property
    def result(self) -> ProtocolResult | None:
        """The result of all seeds so far."""
        return ProtocolResult.join(self.results) if self.results else None

    @property
    def published(self) -> tuple[PublishedRow, ...]:
        return self.protocol.published(self.request.data)

    def to_json(self) -> dict[str, Any]:
        return {
            "protocol": _describe(self.protocol),
            "result": None if self.result is None else self.result.to_json(),
            "baselines": [each.to_json() for each in self.baselines],
            "published": [row.to_json() for row in self.published],
        }

    def show(self) -> None:
        """Print one table, best first: this run, its baselines, and published rows."""
        protocol, result, more = self.protocol, self.result, self.protocol.more_metrics
        rows = [] if result is None else [(result.mean, _result_cells(result, "this run", more), "bold")]
        rows += [(each.mean, _result_cells(each, "baseline", more), "") for each in self.baselines]
        rows += [(row.test, _published_cells(row, more), "dim") for row in self.published]
        rows.sort(key=lambda row: row[0], reverse=protocol.higher_is_better)
        names = ["method", "from", "seeds", "validation", "test", *more]
        header, *lines = align_columns([names, *(cells for _, cells, _ in rows)], text_columns=2, gap=2)
        print_result(self._title(), "", header)
        for line, (_, _, style) in zip(lines, rows, strict=True):
            out.print(Text(line, style=style), soft_wrap=True)
        if result is not None:
            print_result("", f"coverage {percent(result.coverage)} of the test examples, {duration(result.seconds)}")
        self._note_sources()

    def _title(self) -> str:
        """What was run, and how much of it where it was interrupted."""
        protocol, done = self.protocol, len(self.results)
        title = f"{protocol.name} on {protocol.choose_data(self.request.data)}, {protocol.metric}"
        if self.result is None:
            return f"{title}: baselines; interrupted before a seed was finished"
        title = f"{title}: {self.result.method}, {pluralize(done, 'seed')}"
        return title if done == self.wanted else f"{title} of {self.wanted} (interrupted)"

    def _note_sources(self) -> None:
        if self.published:
            sources = ", ".join(dict.fromkeys(row.source for row in self.published))
            print_note(f"checked, second hand: published values, from {sources}")
        for row in self.published:
            if row.note:
                print_note(f"{row.method}: {row.note}")


def _result_cells(result: ProtocolResult, origin: str, more: Sequence[str]) -> list[str]:
    validation = _with_deviation(result.validation_mean, result.validation_deviation)
    test = _with_deviation(result.mean, result.deviation)
    others = [_mean_and_deviation(result.more[name]) if name in result.more else "–" for name in more]
    return [result.method, origin, str(len(result.seeds)), validation, test, *others]


def _published_cells(row: PublishedRow, more: Sequence[str]) -> list[str]:
    validation = "–" if row.validation is None else f"{row.validation:.4f}"
    seeds = "–" if row.seeds is None else str(row.seeds)
    others = [f"{row.more[name]:.4f}" if name in row.more else "–" for name in more]
    return [row.method, row.confidence, seeds, validation, _with_deviation(row.test, row.deviation), *others]


def _mean_and_deviation(values: Sequence[float]) -> str:
    return _with_deviation(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


def _with_deviation(mean: float, deviation: float | None) -> str:
    return f"{mean:.4f}" if deviation is None else f"{mean:.4f} ± {deviation:.4f}"
