from __future__ import annotations

import errno
import json
import os
import shutil
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

import strobe
from strobe.engine import evaluate
from strobe.engine.checkpoint import store
from strobe.engine.checkpoint.serialization import write_tree
from strobe.engine.checkpoint.store import LAST, TrainState, best_weights, read_checkpoint
from strobe.engine.records.run_directory import RunDirectory, read_config, read_lines
from strobe.engine.settings import Settings
from strobe.errors import FormatError, OptionError, StrobeError
from strobe.io.checksum import write_checksummed_json
from strobe.plan import Plan
from tests.support.kills import killed_before_step
from tests.support.runs import CtrlC, small_graph

CONFIG: dict[str, Any] = {
    "graph": None,
    "fingerprint": None,
    "model": {"name": "tgcn", "options": {}, "by_name": True},
    "task": {"name": "regression"},
    "problem": {},
    "settings": Settings().to_json(),
    "plan": Plan().to_json(),
    "ranks": 1,
}


def trained(out: Path | None, **changes: Any) -> Any:
    return strobe.train(small_graph(), "tgcn", "regression", **{"out": out, "epochs": 2, **changes})


def all_bytes(path: Path) -> dict[Path, bytes]:
    return {found: found.read_bytes() for found in path.rglob("*") if found.is_file()}


def test_a_run_directory_tells_what_was_trained_and_how_it_went(tmp_path: Path) -> None:
    small_graph().save(tmp_path / "friends")
    out = tmp_path / "deep" / "run"
    run = strobe.train(
        tmp_path / "friends", "tgcn", "regression", out=out, epochs=3, window=2, model_options={"hidden": 4}
    )
    config = read_config(out)
    assert config["graph"] == {"path": str(tmp_path / "friends")}
    assert config["model"] == {"name": "tgcn", "options": {"hidden": 4, "layers": 1}, "by_name": True}
    assert config["task"]["name"] == "regression"
    assert config["settings"]["window"] == 2
    assert config["problem"] == json.loads(json.dumps(run.problem.state()))
    assert config["machine"]["threads"] >= 1
    lines = read_lines(out)
    assert [line["event"] for line in lines] == ["start", "prepared", "epoch", "epoch", "epoch", "finish"]
    wanted = {"epoch", "step", "loss", "validation", "train_s", "evaluate_s", "memory_bytes", "lr", "best"}
    assert wanted <= lines[4].keys()
    assert (lines[4]["epoch"], lines[4]["step"]) == (3, 9)
    assert json.loads((out / "result.json").read_text())["test"] == run.test
    assert max(path.name for path in (out / "checkpoints").iterdir()) == "epoch-000003.safetensors"
    assert {path.name for path in out.iterdir() if not path.name.startswith("events")} == {
        "best.safetensors",
        "checkpoints",
        "config.json",
        "learning_curve.svg",
        "record.jsonl",
        "result.json",
    }


def test_the_picture_is_an_svg_that_names_the_metric_and_the_baseline(finished: Path) -> None:
    drawn = (finished / "learning_curve.svg").read_text()
    texts = [element.text or "" for element in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert "validation mse" in texts
    assert any("last value" in text for text in texts)


def test_tensorboard_reads_the_epochs(finished: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(finished)).Reload()
    assert [event.step for event in events.Scalars("validation/mse")] == [1, 2]
    assert {"loss", "train_s", "memory_bytes"} <= set(events.Tags()["scalars"])


class FullAfter:
    """A file on a disk that has space for ``room`` more bytes, and as the system does it, takes a part first."""

    def __init__(self, file: Any, room: int) -> None:
        self._file, self._room = file, room

    def write(self, text: bytes) -> int:
        if not self._room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written: int = self._file.write(text[: self._room])
        self._room -= written
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def test_a_line_that_the_disk_took_in_part_ends_the_run(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run") as record:
        record.announce({})
        record._file = FullAfter((tmp_path / "run" / "record.jsonl").open("ab", buffering=0), 100)
        record.event("first")
        with pytest.raises(OSError, match="No space"):
            record.event("second")
    assert [line["event"] for line in read_lines(tmp_path / "run")] == ["first"]


def test_a_run_goes_on_when_a_full_disk_has_space_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = write_tree

    def full_at_the_second(target: Path, tree: dict[str, Any]) -> None:
        if tree["epoch"] == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(target, tree)

    monkeypatch.setattr(store, "write_tree", full_at_the_second)
    monkeypatch.setattr(store, "SAVE_EVERY_S", 0.0)
    with pytest.raises(StrobeError, match=r"run has stopped: free some space, and go on with it \(--resume\)"):
        trained(tmp_path / "run")
    monkeypatch.undo()
    assert trained(tmp_path / "run", resume=True).test == trained(None).test


def test_a_run_that_is_there_is_refused_with_every_way_out(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    before = all_bytes(tmp_path / "run")
    with pytest.raises(OptionError, match=r"--resume.*--out.*--overwrite"):
        trained(tmp_path / "run")
    assert all_bytes(tmp_path / "run") == before
    trained(tmp_path / "run", overwrite=True, epochs=1)
    assert read_checkpoint(tmp_path / "run" / LAST)["epoch"] == 1
    assert [line["epoch"] for line in read_lines(tmp_path / "run") if line["event"] == "epoch"] == [1]
    assert len(list((tmp_path / "run").glob("events*"))) == 1


def test_an_overwritten_run_is_whole_until_the_new_one_begins(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    before = all_bytes(tmp_path / "run")
    with pytest.raises(OptionError):
        trained(tmp_path / "run", overwrite=True, model_options={"hidden": 0})
    with pytest.raises(OptionError, match="or batching windows"):  # which is seen when its snapshots are prepared
        strobe.train(small_graph(), "dcrnn", "regression", plan="distdy", out=tmp_path / "run", overwrite=True)
    assert all_bytes(tmp_path / "run") == before


def test_a_run_that_is_refused_while_it_is_prepared_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OptionError):
        strobe.train(small_graph(), "dcrnn", "regression", plan="distdy", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_is_no_run_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("dear reader")
    for choice in ({}, {"overwrite": True}):
        with pytest.raises(OptionError, match="something else than a run"):
            trained(tmp_path / "thesis", **choice)
    with pytest.raises(FormatError, match="there is no run at"):
        trained(tmp_path / "thesis", resume=True)
    with pytest.raises(OptionError, match="is a file"):
        trained(tmp_path / "thesis" / "chapter.tex")
    with pytest.raises(OptionError, match="resumed or overwritten"):
        trained(tmp_path / "thesis", resume=True, overwrite=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["thesis", "chapter.tex"]


@pytest.mark.parametrize("choice", [{}, {"overwrite": True}])
def test_a_folder_with_nothing_but_unfinished_files_is_taken_over(tmp_path: Path, choice: dict[str, Any]) -> None:
    (tmp_path / "run" / "checkpoints" / ".epoch-000001.writing-99").mkdir(parents=True)
    (tmp_path / "run" / ".config.json.writing-99").write_text('{"format": "str')
    with pytest.raises(FormatError, match="leave out --resume"):
        trained(tmp_path / "run", resume=True)
    trained(tmp_path / "run", **choice)
    assert not list((tmp_path / "run").rglob(".*writing*"))


@pytest.mark.parametrize("name", [".thesis.tex.writing-99", ".config.json.writing-mine", "config.json.writing-99"])
def test_unfinished_files_of_other_programs_are_never_touched(tmp_path: Path, name: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text("dear reader")
    for choice in ({}, {"overwrite": True}):
        with pytest.raises(OptionError, match="something else than a run"):
            trained(tmp_path / "run", **choice)
    assert (tmp_path / "run" / name).read_text() == "dear reader"


def test_the_configuration_of_another_program_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text('{"name": "my web site"}')
    with pytest.raises(OptionError, match="something else than a run"):
        trained(tmp_path / "run", overwrite=True)


def recorded(out: Path, *, resume: bool = False, overwrite: bool = False) -> int:
    """What a run of two epochs does to its directory, without training; the epoch it went on from."""
    model, head = nn.Linear(2, 2), nn.Linear(2, 1)
    state = TrainState(model, head, torch.optim.Adam([*model.parameters(), *head.parameters()]))
    with RunDirectory(out, resume=resume, overwrite=overwrite) as record:
        record.start(CONFIG, state)
        begun = state.epoch
        for epoch in range(begun, 2):
            state.epoch = epoch + 1
            state.record_metric(float(epoch), higher_is_better=True)
            record.epoch({"epoch": state.epoch, "step": epoch, "loss": 0.5, "train_s": 0.1, "evaluate_s": 0.1})
            record.save(state)
        result = {"epochs": 2, "best_epoch": 2, "seconds": 1.0, "validation": {}, "test": {}, "baselines": {}}
        record.finish(result, {"learning_curve.svg": "<svg/>"})
    return begun


@pytest.mark.parametrize("before", [False, True])
def test_whenever_a_run_is_killed_its_folder_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # a process is killed here, not the machine
    recorded(tmp_path / "first")  # what is imported once is not in every child
    step = 0
    while True:
        out = tmp_path / str(step)
        if before:
            recorded(out)
        if not killed_before_step(step, partial(recorded, out, overwrite=before)):
            break
        if (out / "config.json").exists():
            shutil.copytree(out, tmp_path / "again")
            with pytest.raises(OptionError, match=r"--resume.*--out.*--overwrite"):
                RunDirectory(tmp_path / "again")
            recorded(tmp_path / "again", overwrite=True)
            shutil.rmtree(tmp_path / "again")
            recorded(out, resume=True)
        else:
            with pytest.raises(FormatError, match="leave out --resume"):
                RunDirectory(out, resume=True)
            recorded(out)
        assert [line["epoch"] for line in read_lines(out) if line["event"] == "epoch"] == [1, 2]
        assert best_weights(out)[1] == 2
        assert not list(out.rglob(".*writing*"))
        step += 1
    assert step > 20


def test_a_changed_configuration_is_refused_with_what_to_do(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    text = (tmp_path / "run" / "config.json").read_text()
    (tmp_path / "run" / "config.json").write_text(text.replace('"epochs": 2', '"epochs": 3'))
    for use in (lambda: trained(tmp_path / "run", resume=True), lambda: evaluate(tmp_path / "run")):
        with pytest.raises(FormatError, match=r"config\.json was changed after it was written.*--overwrite"):
            use()


@pytest.mark.parametrize("name", ["record.jsonl", "result.json", "best.safetensors"])
def test_a_run_with_a_flipped_bit_is_refused(finished: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(finished, tmp_path / "run")
    data = bytearray((tmp_path / "run" / name).read_bytes())
    at = (
        len(data) // 2
        if name == "best.safetensors"
        else data.index(b"e-0")
        if b"e-0" in data
        else data.index(b"0.") + 2
    )
    data[at] ^= 1
    (tmp_path / "run" / name).write_bytes(data)
    with pytest.raises(FormatError, match=name):
        evaluate(tmp_path / "run")


FORGED: list[tuple[str, Any]] = [
    *((name, None) for name in ("model", "settings", "plan", "ranks")),
    *product(("graph", "fingerprint", "task", "problem"), ([], "x", 3, True)),
    ("task", None),
    ("problem", None),
    ("ranks", 0),
    ("graph", {"path": 3}),
    ("graph", {"path": "\0"}),
    ("graph", {"path": "\ud800"}),
    ("model", {"name": "tgcn", "options": {"hidden": "x"}, "by_name": True}),
    ("model", {"name": "tgcn", "options": {"hidden": 10**12}, "by_name": True}),
    ("model", {"name": "unknown", "options": {}, "by_name": True}),
    ("task", {"name": "regression", "ahead": "x"}),
    ("task", {"name": "regression", "self": 3}),
    ("problem", {}),
    ("problem", {"inputs": 3, "mean": {}, "std": None, "from_last": 1}),
    ("settings", {"epochs": "x"}),
    ("settings", {"nothing": 1}),
    ("settings", {}),
    ("plan", {"store": True}),
    ("plan", {"structure": "halo"}),
    ("plan", {}),
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    small_graph().save(folder / "graph")
    strobe.train(folder / "graph", "tgcn", "regression", out=folder / "run", epochs=2)
    return folder / "run"


@pytest.mark.parametrize(("name", "value"), FORGED, ids=[f"{name}-{value!r:.40}" for name, value in FORGED])
def test_a_forged_configuration_is_refused(finished: Path, tmp_path: Path, name: str, value: Any) -> None:
    shutil.copytree(finished, tmp_path / "run")
    config = json.loads((finished / "config.json").read_text())
    write_checksummed_json(tmp_path / "run" / "config.json", config | {name: value})
    with pytest.raises(StrobeError):
        strobe.train(None, None, out=tmp_path / "run", resume=True, epochs=3)
    with pytest.raises(StrobeError):
        evaluate(tmp_path / "run")


def test_best_weights_are_used_where_only_a_checkpoint_has_them(finished: Path, tmp_path: Path) -> None:
    wanted = evaluate(finished)
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "best.safetensors").unlink()
    assert evaluate(tmp_path / "run") == wanted


def test_one_process_at_a_time_writes_a_run(tmp_path: Path) -> None:
    held = RunDirectory(tmp_path / "run")
    with pytest.raises(OptionError, match="being written by another process"):
        trained(tmp_path / "run")
    held.close()
    trained(tmp_path / "run")


def test_an_interruption_is_recorded(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "run", epochs=5, progress=CtrlC(3, 1))
    last = read_lines(tmp_path / "run")[-1]
    assert (last["event"], last["epoch"]) == ("interrupted", 2)
    assert not (tmp_path / "run" / "result.json").exists()


def test_a_half_written_line_is_cut_off(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    with (tmp_path / "run" / "record.jsonl").open("a") as file:
        file.write('{"event": "epo')
    (tmp_path / "run" / ".best.safetensors.writing-123").write_text("half")
    (tmp_path / "run" / "checkpoints" / ".epoch-000003.safetensors.writing-123").write_text("half")
    trained(tmp_path / "run", resume=True, epochs=3)
    lines = (tmp_path / "run" / "record.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines][-4:] == ["resume", "prepared", "epoch", "finish"]
    assert not list((tmp_path / "run").glob(".*"))
    assert not list((tmp_path / "run" / "checkpoints").glob(".*"))


def test_a_record_that_lacks_epochs_is_named(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    lines = (tmp_path / "run" / "record.jsonl").read_text().splitlines()
    (tmp_path / "run" / "record.jsonl").write_text("\n".join([*lines[:2], "{", *lines[3:]]))
    before = all_bytes(tmp_path / "run")
    with pytest.raises(FormatError, match=r"record\.jsonl is damaged: it does not have all 2 epochs"):
        trained(tmp_path / "run", resume=True, epochs=3)
    assert all_bytes(tmp_path / "run") == before


def test_a_checkpoint_that_cannot_be_written_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strobe.engine.checkpoint.store.write_tree", _full)
    with pytest.raises(StrobeError, match=r"has stopped: free some space, or choose another place \(--out\)"):
        trained(tmp_path / "run", epochs=1)
    assert not (tmp_path / "run" / "result.json").exists()
    RunDirectory(tmp_path / "run", resume=True).close()  # it is let go of


def test_what_ends_a_run_goes_before_a_checkpoint_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strobe.engine.checkpoint.store.write_tree", _full)
    with pytest.raises(KeyboardInterrupt) as error:
        trained(tmp_path / "run", epochs=5, progress=CtrlC(2, 1))
    assert any("No space" in note for note in error.value.__notes__)


def _full(folder: Path, nest: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "damaged"),
        ("[]", "not the directory of a run"),
        ('{"format": "strobe-run", "version": "4"}', "older Strobe"),
        ('{"format": "strobe-run", "version": 4}', "changed after it was written"),
        ('{"format": "strobe-run", "version": 99}', "newer Strobe .version 99"),
        ('{"format": "strobe-run", "version": 3}', "older Strobe .version 3 .*--overwrite"),
    ],
)
def test_a_strange_configuration_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(FormatError, match=words):
        read_config(tmp_path)


def test_a_run_without_a_directory_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert trained(None).path is None
    assert not list(tmp_path.iterdir())
    with pytest.raises(OptionError, match="which run directory"):
        trained(None, resume=True)
