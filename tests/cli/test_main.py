from __future__ import annotations

import errno
import subprocess
import sys
from unittest.mock import Mock

import pytest

import strobe
from strobe.cli import main
from strobe.cli.main import COMMANDS, load_command
from strobe.errors import OptionError
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


def test_version_is_shown_and_an_unknown_command_names_the_nearest() -> None:
    assert run_command("--version").stdout == f"strobe {strobe.__version__}\n"
    assert "'train'" in run_command("trian", code=2).stderr


@pytest.mark.parametrize(
    ("error", "code", "word"),
    [
        (OptionError("no such option"), 2, "error: no such option"),
        (OSError(errno.ENOSPC, "full"), 2, "disk is full"),
        (MemoryError(), 2, "--window"),
        (RuntimeError("can't allocate memory"), 2, "--window"),
        (SystemExit(130), 130, "unfinished files"),
    ],
)
def test_errors_exit_with_a_code_and_one_line(
    error: BaseException, code: int, word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "app", Mock(side_effect=error))
    with pytest.raises(SystemExit) as left:
        main.run()
    shown = capsys.readouterr().err
    assert left.value.code == code
    assert word in shown
    assert shown.count("\n") == 1
    monkeypatch.setattr(main, "app", Mock(side_effect=RuntimeError("a bug")))
    with pytest.raises(RuntimeError, match="a bug"):
        main.run()


@pytest.mark.parametrize("name", ["models", "data"])
def test_modules_are_left_out_of_searches_for_garbage_which_go_on(name: str) -> None:
    code = f"import gc; from strobe.cli.main import load_command; load_command('{name}')\n"
    code += "print(gc.isenabled(), gc.get_freeze_count() > 0)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "True"]


def test_nothing_is_reported_at_exit_where_duckdb_is_loaded() -> None:
    code = "import duckdb, sys; sys.argv = ['strobe', '--version']; from strobe.cli.main import run; run()"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")
