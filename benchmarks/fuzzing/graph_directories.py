"""Graph directories, damaged with and without forged checksums: opened, described, and trained on for one step."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.fuzzing.graph_damage import damage, make_graphs
from benchmarks.fuzzing.plain_graph import InvalidError, PlainGraph, PlainShot, read_plain
from benchmarks.fuzzing.target import FuzzTarget, SilentDifferenceError
from strobe.errors import StrobeError
from strobe.graph import DynamicGraph, Snapshot, open_graph
from strobe.graph.stats import describe
from strobe.models import MODELS
from strobe.plan import Plan
from strobe.store import Delta, Full

_STORES = {"full": Full(), "delta": Delta(window=2)}
_UNDAMAGED = 0.04  # the share of inputs that stay as they are


class GraphDirectories(FuzzTarget):
    """Where Strobe accepts a directory, plain loops must accept it too and read the same snapshots from it; a directory
    whose bytes did not change must be accepted, and be trained on to the same scores."""

    name: ClassVar[str] = "graphs"
    inputs: ClassVar[int] = 5_200

    def __init__(self, models: Sequence[str] = tuple(MODELS)) -> None:
        self.models = sorted(models)

    def setup(self, cache: Path) -> None:
        os.environ["XDG_CACHE_HOME"] = str(cache / "user")
        self.graphs = cache / "graphs"
        self.tasks = make_graphs(self.graphs)
        self.scores: dict[tuple[str, str, str], Any] = {}
        for model in self.models:  # what is compiled or loaded on first use is no part of an input's time
            for store in _STORES:
                for graph in ("present", "grown weighted"):
                    self._score(graph, model, store)

    def run(self, rng: random.Random, folder: Path) -> str:
        name = rng.choice(sorted(self.tasks))
        model, store = rng.choice(self.models), rng.choice(sorted(_STORES))
        place = folder / "graph"
        shutil.copytree(self.graphs / name, place)
        if rng.random() > _UNDAMAGED:
            damage(rng, place)
        changed = _contents(place) != _contents(self.graphs / name)
        try:
            opened = open_graph(place)
            seen = list(opened)
        except StrobeError as error:
            if not changed:
                raise SilentDifferenceError(f"{name}: refused as it was written: {error}") from error
            return "refused" if _oracle(place) is None else "refused what plain loops accept"
        plain = _oracle(place)
        if plain is None:
            raise SilentDifferenceError(f"{name}: accepted, but {_why(place)}")
        _compare(name, opened, seen, plain)
        describe(opened)
        try:
            scores = _trained(place, model, self.tasks[name], store)
        except StrobeError as error:
            if not changed:
                raise SilentDifferenceError(f"{name}: not trained as it was written: {error}") from error
            return "accepted, not trained"
        if not changed and not _same(scores, self._score(name, model, store)):
            raise SilentDifferenceError(f"{name}: {model} on {store} came to {scores}")
        return "trained" if changed else "unchanged"

    def _score(self, name: str, model: str, store: str) -> Any:
        key = name, model, store
        if key not in self.scores:
            self.scores[key] = _trained(self.graphs / name, model, self.tasks[name], store)
        return self.scores[key]


def _trained(place: Path, model: str, task: str, store: str) -> Any:
    from strobe.api import train

    options = {"hidden": 4} | ({"heads": 2} if model in ("dysat", "gat-lstm") else {})
    run = train(place, model, task, plan=Plan(store=_STORES[store]), epochs=1, threads=1, model_options=options)
    return run.history[-1]["loss"], run.validation, run.test


def _oracle(place: Path) -> PlainGraph | None:
    try:
        return read_plain(place)
    except InvalidError:
        return None


def _why(place: Path) -> str:
    try:
        read_plain(place)
    except InvalidError as error:
        return str(error)
    return "nothing"


def _contents(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder by its path, links as what they are."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in folder.rglob("*")
    }


def _compare(name: str, opened: DynamicGraph, seen: list[Snapshot], plain: PlainGraph) -> None:
    whole = (opened.num_nodes, opened.directed, len(seen), opened.num_edges)
    if whole != (plain.num_nodes, plain.directed, len(plain.shots), plain.num_edges):
        raise SilentDifferenceError(f"{name}: {whole}")
    if not _same(dict(opened.info), plain.info):
        raise SilentDifferenceError(f"{name}: info {opened.info}")
    if (None if opened.names is None else list(opened.names)) != plain.names:
        raise SilentDifferenceError(f"{name}: names {opened.names}")
    for snapshot, shot in zip(seen, plain.shots, strict=True):
        _compare_shot(name, snapshot, shot)


def _compare_shot(name: str, snapshot: Snapshot, shot: PlainShot) -> None:
    where = f"{name}: snapshot {snapshot.t}"
    if snapshot.time != shot.time or snapshot.nodes.tolist() != shot.nodes:
        raise SilentDifferenceError(f"{where}: time or nodes")
    sources, destinations = snapshot.arcs()
    weights = [None] * len(sources) if snapshot.weight is None else snapshot.weight.tolist()
    if list(zip(destinations.tolist(), sources.tolist(), weights, strict=True)) != shot.arcs:
        raise SilentDifferenceError(f"{where}: arcs")
    for what, ours, theirs in (("x", snapshot.x, shot.x), ("y", snapshot.y, shot.y)):
        if (ours is None) != (theirs is None):
            raise SilentDifferenceError(f"{where}: {what}")
        if ours is None or theirs is None or not len(ours):
            continue
        with np.errstate(all="ignore"):
            expected = np.array(theirs, np.float64)
            known = ~np.isnan(expected) if ours.shape == expected.shape else np.array(True)
            close = np.isclose(ours.astype(np.float64), expected.astype(np.float32), rtol=1e-5) | (ours == expected)
        if ours.shape != expected.shape or not bool(close[known].all()):
            raise SilentDifferenceError(f"{where}: {what} is {ours.tolist()}, not {theirs}")


def _same(one: Any, other: Any) -> bool:
    """Equality in which NaN equals itself."""
    return bool(one == other) or repr(one) == repr(other)
