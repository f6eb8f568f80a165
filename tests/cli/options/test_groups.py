from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.testing import CliRunner

from strobe.cli.options.groups import explicit_options, flatten_options


@dataclass(frozen=True, kw_only=True)
class Colors:
    paint: Annotated[str | None, typer.Option(help="Which paint.")] = None
    coats: Annotated[int, typer.Option(help="How many.")] = 1


def run(*arguments: str) -> tuple[Any, ...]:
    seen: list[tuple[Any, ...]] = []

    @flatten_options
    def command(
        wall: Annotated[str, typer.Argument()] = "north", *, colors: Colors, wet: Annotated[bool, "x"] = False
    ) -> None:
        """Paint a wall."""
        seen.append((wall, colors, wet))

    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return seen[0] if seen else (result.stdout,)


def test_options_of_a_group_are_options_of_the_command() -> None:
    assert run("south", "--paint", "red", "--coats", "2", "--wet") == ("south", Colors(paint="red", coats=2), True)
    assert run() == ("north", Colors(), False)
    (shown,) = run("--help")
    for words in ("Paint a wall.", "--paint", "Which paint.", "--coats"):
        assert words in shown
    assert "--colors" not in shown


def test_explicit_options_are_those_given() -> None:
    assert explicit_options(Colors(coats=3), seed=0, lr=None) == {"coats": 3, "seed": 0}
