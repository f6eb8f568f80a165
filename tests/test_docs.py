"""Documents: code runs, commands and options exist, numbers are those of the records."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

import strobe.cli.main
from benchmarks.distdy_tables import picture
from benchmarks.record import RESULTS
from benchmarks.render import DOCUMENTS, PICTURE, rendered

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAYMENTS = "payer,payee,at,amount\n" + "".join(
    f"acct{k % 5},acct{(k * k + 1) % 7},2024-{1 + k % 6:02d}-{1 + k % 28:02d},{k}.5\n" for k in range(60)
)
CUSTOMERS = "id,age,country\n" + "".join(f"acct{k},{20 + k},{'NO' if k % 2 else 'DK'}\n" for k in range(7))


def blocks(document: str) -> list[tuple[str, str]]:
    return [(language, body) for language, body in FENCE.findall((ROOT / document).read_text())]


def commands(body: str) -> list[str]:
    """The strobe commands of a shell block, with continued lines joined."""
    joined = body.replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.startswith("strobe ")]


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.usefixtures("ranks_are_threads")
def test_code_blocks_run(
    document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "payments.csv").write_text(PAYMENTS)
    (tmp_path / "customers.csv").write_text(CUSTOMERS)
    monkeypatch.chdir(tmp_path)
    shared = ROOT.parent / "shared" / "data"
    data = os.environ.get("STROBE_DATA") or (str(shared) if shared.is_dir() else None)
    if data is not None:
        monkeypatch.setenv("STROBE_DATA", data)
    namespace: dict[str, Any] = {}
    ran = 0
    for language, body in blocks(document):
        if language == "python":
            exec(compile(body, document, "exec"), namespace)
            ran += 1
        for command in commands(body) if language == "sh" else []:
            if " get " in command and data is None:
                continue  # needs a data set that is not here
            monkeypatch.setattr(sys, "argv", shlex.split(command))
            with pytest.raises(SystemExit) as left:
                strobe.cli.main.run()
            assert not left.value.code, (command, capsys.readouterr())
            ran += 1
    assert ran or not blocks(document)


NAMED = re.compile(r"(?:^ *|`)strobe ([a-z][^`\n]*)", re.MULTILINE)
"""A command in a sentence or a block."""


def unknown_options(named: str) -> list[str]:
    """The options in a command line that the command does not have."""
    name, *words = shlex.split(named, comments=True)
    if name not in strobe.cli.main.COMMANDS:
        return []
    command = strobe.cli.main.load_command(name)
    while words and hasattr(command, "get_command"):
        inner = command.get_command(command.context_class(command), words[0])  # also what is made when it is named
        if inner is None:
            break
        command, words = inner, words[1:]
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    return [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_named_options_exist(document: str) -> None:
    text = (ROOT / document).read_text().replace("\\\n", " ")
    assert {named: found for named in NAMED.findall(text) if (found := unknown_options(named))} == {}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_numbers_equal_the_records(document: str) -> None:
    text = (ROOT / document).read_text()
    assert rendered(text) == text, "run python -m benchmarks.render"


@pytest.mark.parametrize("document", [*DOCUMENTS, "docs/glossary.md"])
def test_links_exist(document: str) -> None:
    folder = (ROOT / document).parent
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / document).read_text())
    assert [target for target in targets if not (folder / target).exists()] == []


def test_pictures_are_up_to_date() -> None:
    namespace: dict[str, Any] = {"__name__": "axes", "__file__": str(ROOT / "docs/axes.py")}
    exec(compile((ROOT / "docs/axes.py").read_text(), "axes.py", "exec"), namespace)
    assert (ROOT / "docs/axes.svg").read_text() == namespace["draw"]()
    record = json.loads((RESULTS / "distdy.json").read_text())
    assert PICTURE.read_text() == picture(record), "run python -m benchmarks.render"


def test_readme_has_under_150_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150
