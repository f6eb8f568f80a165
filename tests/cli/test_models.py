from __future__ import annotations

import json

from typer.testing import CliRunner

from strobe.cli.main import app
from strobe.models import MODELS
from strobe.tasks import TASKS


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["models", *arguments], env={"COLUMNS": "80"})
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def test_every_model_and_task_is_listed_with_its_options() -> None:
    shown = run()
    assert max(len(line) for line in shown.splitlines()) <= 80
    for name in (*MODELS, *TASKS):
        assert any(line.startswith(f"{name} ") for line in shown.splitlines())
    assert "hidden=32 layers=1" in shown
    assert "``" not in shown


def test_json_is_one_line() -> None:
    found = json.loads(run("--json"))
    assert [model["name"] for model in found["models"]] == list(MODELS)
    assert {task["name"]: task["options"]["train"] for task in found["tasks"]} == dict.fromkeys(TASKS, 0.7)
    assert all(each["summary"] for each in found["models"] + found["tasks"])
