from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu_memory
from benchmarks.gpu_memory import Benchmark, case, made
from benchmarks.record import Record

TINY = {"peaks": (300, 500, 24), "bitcoin": (400, 60, 30), "largest": (200, 200, 13)}


def benchmark(folder: Path, monkeypatch: pytest.MonkeyPatch, said: Any) -> Benchmark:
    """The cases on tiny graphs, with what their processes say."""
    monkeypatch.setattr(gpu_memory, "QUICK", TINY)
    monkeypatch.setattr(gpu_memory, "child", said)
    chosen = argparse.Namespace(quick=True, json=folder / "record.json", device="cpu")
    return Benchmark(Record("gpu_memory", quick=True), chosen, folder)


def here(module: str, part: str, path: Path, model: str, keep: str, device: str, epochs: int) -> dict[str, Any]:
    assert module == "benchmarks.gpu_memory"
    return {"nodes": 250} if part == "room" else case(part, path, model, keep, device, epochs)


def test_all_cases_run_on_a_cpu_and_every_figure_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measuring = benchmark(tmp_path, monkeypatch, here)
    measuring.run(["peaks", "bitcoin", "largest"])
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["missing"] == {}
    assert set(record["figures"]) == {
        *("peak_prediction_error", "waiting_costs_worst", "bitcoin_epoch_s", "bitcoin_gib"),
        *("largest_nodes", "largest_gib"),
    }
    assert record["samples"]["largest"]["nodes"] == 250
    host, device = (record["samples"][f"peaks tgcn {keep}"] for keep in ("host", "device"))
    assert host["streamed"]
    assert not device["streamed"]
    assert host["loss"] == device["loss"]
    assert {"opening", "predicting", "fitting to the training snapshots", "preparing snapshots", "epochs"} <= set(
        device["seconds"]
    )
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]  # graphs are gone


def test_a_failed_case_is_reported_and_the_others_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def child(module: str, part: str, path: Path, model: str, *rest: Any) -> dict[str, Any]:
        if part == "bitcoin":
            raise subprocess.CalledProcessError(-9, "python")
        if model != "tgcn" or part == "room":
            return {"failed": "OutOfMemoryError: CUDA out of memory"}
        return {"predicted_bytes": 3, "device_bytes": 2, "epoch_s": 1.0, "seconds": {}}

    measuring = benchmark(tmp_path, monkeypatch, child)
    measuring.record.missing |= {"bitcoin": "known before", "peaks tgcn host": "known before"}
    measuring.run(["peaks", "bitcoin", "largest"])
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["figures"] == {"peak_prediction_error": 0.5, "waiting_costs_worst": 1.0}
    assert "-9" in record["missing"].pop("bitcoin")
    failed = ("peaks evolvegcn-o device", "peaks evolvegcn-o host", "largest room")
    assert record["missing"] == dict.fromkeys(failed, "OutOfMemoryError: CUDA out of memory")


def test_an_error_of_a_run_is_one_sentence(tmp_path: Path) -> None:
    made(tmp_path / "graph", 10, 20, 3)
    failed = case("bitcoin", tmp_path / "graph", "tgcn", "auto", "cpu", 1)["failed"]
    assert failed.startswith("InputError: 2 snapshots have targets")
    assert "\n" not in failed
