from __future__ import annotations

import subprocess
import sys

import pytest

from strobe.cli.main import COMMANDS, app, load_command
from tests.support.cli_runner import run_command


def test_help_lists_every_command_without_importing_torch() -> None:
    code = "import sys; from strobe.cli.main import run; sys.argv = ['strobe', '--help']\n"
    code += "try: run()\nexcept SystemExit: assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in COMMANDS:
        assert f" {name} " in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_listed_help_is_the_first_line_of_the_command(name: str) -> None:
    command = load_command(name)
    assert (command.help or "").split("\n", 1)[0].strip() == COMMANDS[name]


def test_unknown_command_names_the_nearest() -> None:
    result = run_command("trian", code=2)
    assert "'train'" in result.stderr


def test_commands_are_registered_in_order() -> None:
    assert [each.name for each in app.registered_commands] == list(COMMANDS)
