"""Run commands of ``strobe`` within the test's process."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from strobe.cli.errors import RunInterruptedError
from strobe.cli.main import app
from strobe.errors import StrobeError


def run_command(*arguments: object, code: int = 0) -> Result:
    """Run a command with 80 columns; raises its error, and fails if it exits with another code."""
    result = CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "80"})
    if isinstance(result.exception, StrobeError | RunInterruptedError):
        raise result.exception
    assert result.exit_code == code, (result.output, result.exception)
    return result
