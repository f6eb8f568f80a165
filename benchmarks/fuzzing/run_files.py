"""Run directories, damaged with and without forged checksums, then used; plan files; options.

What is accepted must give what the undamaged run gives, bit for bit, unless a checksum was forged; damage to a file
that is read must be refused.
"""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

import strobe
from benchmarks.fuzzing.plan_inputs import run_options, run_plan
from benchmarks.fuzzing.run_damage import JSON_FILES, LINES, damage, same_json
from benchmarks.fuzzing.target import FuzzTarget, SilentDifferenceError
from strobe.api import open_run
from strobe.batching import Hybrid, Trapezoid
from strobe.engine import Progress, evaluate
from strobe.engine.checkpoint import store
from strobe.errors import StrobeError
from strobe.exchange import Cached, Exchange, NoTimeExchange
from strobe.graph.synthetic import Social
from strobe.placement import Metis
from strobe.plan import Plan

EPOCHS, MORE = 3, 4
"""Epochs of the runs, and of those that are resumed."""


class _Interrupt(Progress):
    """Stops training in the middle of an epoch."""

    def step(self, epoch: int, step: int) -> None:
        if epoch == EPOCHS:
            raise KeyboardInterrupt


@dataclass(frozen=True)
class _Variant:
    """A run to damage, and a sum over what each use of it gives."""

    path: Path
    expected: dict[str, str]


def _evaluate(run: Path) -> Any:
    return evaluate(run, "test").to_json()


def _predict(run: Path) -> Any:
    return open_run(run).predict("test").to_pydict()


def _open(run: Path) -> Any:
    found = open_run(run)
    return {**found.model.state_dict(), **found.head.state_dict()}, found.best_epoch


def _resume(run: Path) -> Any:
    found = strobe.train(None, None, out=run, resume=True, epochs=MORE)
    losses = [line["loss"] for line in found.history]
    return {**found.model.state_dict(), **found.head.state_dict()}, losses, found.validation, found.test


USES: dict[str, Callable[[Path], Any]] = {
    "evaluate": _evaluate,
    "predict": _predict,
    "open": _open,
    "resume": _resume,
}


class RunFiles(FuzzTarget):
    """Run directories of several tasks and plans, finished and interrupted; plans; options."""

    name: ClassVar[str] = "runs"
    inputs: ClassVar[int] = 5_200

    def __init__(self) -> None:
        self.variants: list[_Variant] = []

    def setup(self, cache: Path) -> None:
        torch.set_num_threads(1)
        Social(nodes=12, snapshots=8, edges=20, communities=3, labels=True, seed=0).write().save(cache / "graph")
        hybrid = Plan(
            batching=Hybrid(snapshots=0.5, vertices=(0.2, 0.5), size_policy="random", steps_per_epoch=3),
            exchange=Exchange(structure=Cached(), time=NoTimeExchange()),
        )
        trapezoid = Plan(placement=Metis(chunks=4), batching=Trapezoid(full=1, decayed=2, min_keep=0.5, search_every=1))
        runs: list[tuple[str, str, Plan | None, bool]] = [
            ("tgcn", "regression", None, False),
            ("sage", "classification", None, True),
            ("tgcn", "link-prediction", None, False),
            ("tgcn", "regression", hybrid, True),
            ("tgcn", "regression", trapezoid, True),
        ]
        store.SAVE_EVERY_S = 0.0  # two checkpoints of every run
        for number, (model, task, plan, interrupted) in enumerate(runs):
            path = cache / f"run{number}"
            self._train(cache / "graph", model, task, plan, path, interrupted=interrupted)
            self.variants.append(_Variant(path, self._expected(path, cache / "used")))
        store.SAVE_EVERY_S = 1e9

    def _train(self, graph: Path, model: str, task: str, plan: Plan | None, out: Path, *, interrupted: bool) -> None:
        chosen: dict[str, Any] = {"epochs": EPOCHS, "threads": 1, "model_options": {"hidden": 2}, "plan": plan}
        with suppress(KeyboardInterrupt):
            strobe.train(graph, model, task, out=out, progress=_Interrupt() if interrupted else None, **chosen)

    def _expected(self, path: Path, scratch: Path) -> dict[str, str]:
        found = {}
        for name, use in USES.items():
            shutil.copytree(path, scratch)
            found[name] = digest(use(scratch))
            shutil.rmtree(scratch)
        return found

    def run(self, rng: random.Random, folder: Path) -> str:
        kind = rng.random()
        if kind < 0.25:
            return run_plan(rng, folder)
        if kind < 0.35:
            return run_options(rng)
        variant = rng.choice(self.variants)
        run = folder / "run"
        shutil.copytree(variant.path, run)
        done = [damage(rng, run) for _ in range(rng.choice([1, 1, 1, 2]))]
        in_checkpoint = any(each.path is not None and "checkpoints" in each.path.parts for each in done)
        use = "resume" if in_checkpoint and rng.random() < 0.8 else rng.choices(list(USES), [3, 2, 2, 2])[0]
        refused = must_be_refused(use, variant.path, run)
        try:
            found = digest(USES[use](run))
        except StrobeError:
            if all(each.what in ("harmless", "leave over", "nothing") for each in done):
                raise SilentDifferenceError(f"{use} refuses a run that is whole: {done}") from None
            return f"{use} refused"
        if any(each.forged for each in done):
            return f"{use} of a forged run"
        if refused:
            raise SilentDifferenceError(f"{use} takes a damaged {refused}: {done}")
        if found != variant.expected[use]:
            raise SilentDifferenceError(f"{use} gives something else after {done}")
        return f"{use} accepted"


def must_be_refused(use: str, before: Path, after: Path) -> str | None:
    """The name of a file that this use reads and whose content has changed in a way that its checksum shows."""
    newest = max((after / "checkpoints").glob("epoch-*"), default=None, key=lambda path: path.name)
    read = [*JSON_FILES[:1], *([] if newest is None else [str(newest.relative_to(after))])]
    if use != "resume":
        read = [*JSON_FILES, LINES, "best.safetensors"]
    for name in read:
        if not (after / name).exists() or not (before / name).exists():
            continue  # a file that is gone may be one that never was
        was, now = (before / name).read_bytes(), (after / name).read_bytes()
        if was == now or (name in JSON_FILES and same_json(was, now)):
            continue
        if name == LINES and _same_lines(was, now):
            continue
        return name
    return None


def _same_lines(before: bytes, after: bytes) -> bool:
    """Whether whole lines hold the same values; after the last of them, an unfinished one may stand."""
    was, now = before.split(b"\n")[:-1], after.split(b"\n")[:-1]
    return len(now) <= len(was) and all(map(same_json, was, now))


def digest(value: Any) -> str:
    """A sum over every bit of a result."""
    found = hashlib.sha256()

    def add(part: Any) -> None:
        if isinstance(part, torch.Tensor):
            found.update(f"{part.dtype}{list(part.shape)}".encode() + part.contiguous().numpy().tobytes())
        elif isinstance(part, dict):
            for name, item in part.items():
                found.update(repr(name).encode())
                add(item)
        elif isinstance(part, list | tuple):
            found.update(b"[")
            for item in part:
                add(item)
        else:
            found.update(repr(part).encode())

    add(value)
    return found.hexdigest()
