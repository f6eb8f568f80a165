from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.testing import CliRunner

from strobe.cli.option_groups import grouped, said


@dataclass(frozen=True, kw_only=True)
class Colours:
    paint: Annotated[str | None, typer.Option(help="Which paint.")] = None
    coats: Annotated[int, typer.Option(help="How many.")] = 1


def run(*arguments: str) -> tuple[Any, ...]:
    seen: list[tuple[Any, ...]] = []

    @grouped
    def command(
        wall: Annotated[str, typer.Argument()] = "north", *, colours: Colours, wet: Annotated[bool, "x"] = False
    ) -> None:
        """Paint a wall."""
        seen.append((wall, colours, wet))

    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return seen[0] if seen else (result.stdout,)


def test_options_of_a_group_are_options_of_the_command() -> None:
    assert run("south", "--paint", "red", "--coats", "2", "--wet") == ("south", Colours(paint="red", coats=2), True)
    assert run() == ("north", Colours(), False)


def test_help_shows_them_and_what_the_command_says() -> None:
    (shown,) = run("--help")
    for words in ("Paint a wall.", "--paint", "Which paint.", "--coats"):
        assert words in shown
    assert "--colours" not in shown


def test_said_is_what_was_given() -> None:
    assert said(Colours(coats=3)) == {"coats": 3}
