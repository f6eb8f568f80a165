from __future__ import annotations

import json

from tests.support.cli_runner import run_command


def test_the_command_lists_every_published_protocol() -> None:
    rows = {row["name"]: row for row in json.loads(run_command("benchmark", "list", "--json").stdout)["protocols"]}
    assert rows["dysat"]["data_sets"] == ["enron_dysat", "uci_dysat"]
    assert rows["dysat"]["models"][0] == "dysat"
    assert rows["tgcn-los-loop"]["higher_is_better"] is False
    shown = run_command("benchmark", "list").stdout
    assert all(name in shown for name in ("dysat", "tgcn-los-loop", "tgbl-wiki"))
