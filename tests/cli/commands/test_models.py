from __future__ import annotations

import json

from strobe.models import MODELS
from strobe.tasks import TASKS
from tests.support.cli_runner import run_command


def run(*arguments: object) -> str:
    return run_command("models", *arguments).stdout


def test_lists_every_model_and_task_with_options() -> None:
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
