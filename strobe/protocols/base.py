"""Published evaluation protocols: what they fix, what they return, and the rows they are compared with."""

from __future__ import annotations

import statistics
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib import import_module
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, get_args

from strobe.errors import OptionError, UnknownNameError
from strobe.graph.progress import OnStage

Confidence = Literal["checked", "second hand"]
"""checked: recomputed, or read in the authors' table, code or logs. second hand: quoted by a third party."""

SEEDS = 3


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """A published result on one data set.

    Attributes:
        method: the published model or baseline.
        test: its value of the protocol's metric on the test part.
        validation: the same on the validation part, if published.
        deviation: of the test value over seeds, if published.
        seeds: number of runs, if published.
        source: where the value was published.
        confidence: whether the value was checked or is second hand.
        note: what a reader must know to compare it.
        more: values of the protocol's further metrics on the test part, by name.
    """

    method: str
    test: float
    source: str
    confidence: Confidence
    validation: float | None = None
    deviation: float | None = None
    seeds: int | None = None
    note: str = ""
    more: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.confidence not in get_args(Confidence):
            raise OptionError(f"confidence is {' or '.join(get_args(Confidence))}, not {self.confidence!r}")

    def to_json(self) -> dict[str, Any]:
        return _values(self)


@dataclass(frozen=True, kw_only=True)
class ProtocolResult:
    """Scores of one method under a protocol, a value per seed.

    Attributes:
        protocol: name of the protocol.
        data: name of the data set.
        method: name of the model or baseline.
        metric: name of the metric.
        seeds: seed of each run; one run for methods without randomness.
        validation: metric on the validation part, per seed.
        test: metric on the test part, per seed.
        coverage: share of the protocol's test examples that were scored.
        settings: every choice that the result depends on.
        seconds: time of all runs together.
        more: further metrics on the test part by name, per seed.
    """

    protocol: str
    data: str
    method: str
    metric: str
    seeds: tuple[int, ...]
    validation: tuple[float, ...]
    test: tuple[float, ...]
    coverage: float
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    more: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not len(self.seeds) == len(self.validation) == len(self.test) > 0:
            raise OptionError(
                f"a result has one value per seed: {len(self.seeds)} seeds, {len(self.validation)} validation and "
                f"{len(self.test)} test values"
            )
        for name, values in self.more.items():
            if len(values) != len(self.seeds):
                raise OptionError(f"a result has one value per seed: {len(self.seeds)} seeds, {len(values)} of {name}")

    @property
    def mean(self) -> float:
        """Mean of the test values."""
        return statistics.fmean(self.test)

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation of the test values; None for one seed."""
        return statistics.stdev(self.test) if len(self.test) > 1 else None

    @property
    def validation_mean(self) -> float:
        return statistics.fmean(self.validation)

    @property
    def validation_deviation(self) -> float | None:
        return statistics.stdev(self.validation) if len(self.validation) > 1 else None

    def to_json(self) -> dict[str, Any]:
        derived = ("mean", "deviation", "validation_mean", "validation_deviation")
        return _values(self) | {name: getattr(self, name) for name in derived}

    @classmethod
    def join(cls, results: Sequence[ProtocolResult]) -> ProtocolResult:
        """Join the results of the same method with different seeds; settings that are lists of one value per seed are
        joined, too."""
        first = results[0]
        return replace(
            first,
            seeds=tuple(chain(*(each.seeds for each in results))),
            validation=tuple(chain(*(each.validation for each in results))),
            test=tuple(chain(*(each.test for each in results))),
            more={name: tuple(chain(*(each.more[name] for each in results))) for name in first.more},
            coverage=min(each.coverage for each in results),
            settings=_join_settings([each.settings for each in results], [len(each.seeds) for each in results]),
            seconds=sum(each.seconds for each in results),
        )

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ProtocolResult:
        """Read what ``to_json`` returned, also after a trip through text."""
        known = {each.name: values[each.name] for each in fields(cls) if each.name in values}
        known |= {name: tuple(known[name]) for name in ("seeds", "validation", "test")}
        return cls(**known | {"more": {name: tuple(each) for name, each in known.get("more", {}).items()}})


@dataclass(frozen=True, kw_only=True)
class ProtocolRequest:
    """What a user chooses about a run; the protocol fixes everything else.

    Attributes:
        data: name of the data set; None for the protocol's first.
        model: name of the model; None for the protocol's first.
        seeds: number of runs, with the seeds ``first_seed``, ``first_seed`` + 1, ….
        first_seed: seed of the first run.
        epochs: most passes over the training part; None for the protocol's default.
        data_dir: directory of data sets, as in ``strobe.load``.
        device: device of the model; None for the CPU.
        on_stage: called with (stage, done, total) while the protocol runs.
    """

    data: str | None = None
    model: str | None = None
    seeds: int = SEEDS
    first_seed: int = 0
    epochs: int | None = None
    data_dir: str | PathLike[str] | None = None
    device: str | None = None
    on_stage: OnStage | None = None

    def __post_init__(self) -> None:
        for name in ("seeds", "epochs"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise OptionError(f"{name} must be a whole number from 1 on, not {value!r}")

    @property
    def seed_values(self) -> tuple[int, ...]:
        """The seed of each run."""
        return tuple(range(self.first_seed, self.first_seed + self.seeds))

    def report(self, stage: str, done: int, total: int | None) -> None:
        if self.on_stage is not None:
            self.on_stage(stage, done, total)


@dataclass(frozen=True, kw_only=True)
class Protocol(ABC):
    """A published evaluation: data sets, snapshots, split, negatives, metric and loop, all fixed.

    A protocol of your own is a subclass with ``run``, and ``run_baselines`` if it has baselines; ``register`` makes
    its name known.

    Attributes:
        name: name on the command line.
        description: one line.
        citation: paper that defines the protocol.
        data_sets: data sets it is defined on, the default first.
        models: models it can run, the default first; empty if it takes every model of Strobe.
        metric: name of the metric.
        more_metrics: names of further metrics of the test part, which results and published rows may have.
        higher_is_better: direction of the metric.
        snapshots: how time is cut, in words.
        split: training, validation and test parts, in words.
        negatives: what positives are ranked against, in words.
        update: what a model may read when it is scored, in words.
        epochs: what the number of epochs of a request limits, in words.
    """

    name: str
    description: str
    citation: str
    data_sets: tuple[str, ...]
    models: tuple[str, ...] = ()
    metric: str
    more_metrics: tuple[str, ...] = ()
    higher_is_better: bool = True
    snapshots: str
    split: str
    negatives: str
    update: str
    epochs: str = "most passes over the training part"

    words: ClassVar[tuple[str, ...]] = ("snapshots", "split", "negatives", "update", "metric")

    @abstractmethod
    def run(self, request: ProtocolRequest) -> ProtocolResult:
        """Train and score the model of a request, once per seed."""

    def run_each_seed(self, request: ProtocolRequest) -> Iterator[ProtocolResult]:
        """Yield the result of one seed after the other."""
        for seed in request.seed_values:
            yield self.run(replace(request, seeds=1, first_seed=seed))

    def run_baselines(self, request: ProtocolRequest) -> list[ProtocolResult]:
        """Score the trivial methods that a model is compared with, in the order in which they are shown."""
        return []

    def published(self, data: str | None = None) -> tuple[PublishedRow, ...]:
        """Published results on a data set."""
        return load_published().get((self.name, self.choose_data(data)), ())

    def choose_data(self, data: str | None) -> str:
        """Return the data set of a request.

        Raises:
            UnknownNameError: the protocol is not defined on it.
        """
        if data is None:
            return self.data_sets[0]
        if data not in self.data_sets:
            raise UnknownNameError(f"data set of the protocol {self.name}", data, self.data_sets)
        return data

    def choose_model(self, model: str | None) -> str:
        """Return the model of a request, for protocols that list their models.

        Raises:
            UnknownNameError: the protocol has no such model.
        """
        if model is None:
            return self.models[0]
        if model not in self.models:
            raise UnknownNameError(f"model of the protocol {self.name}", model, self.models)
        return model


ProtocolT = TypeVar("ProtocolT", bound=Protocol)

BUILT_IN: Mapping[str, str] = {
    "dyglib-historical": "dyglib:HISTORICAL",
    "dyglib-inductive": "dyglib:INDUCTIVE",
    "dyglib-random": "dyglib:RANDOM",
    "dysat": "dysat:DYSAT",
    "evolvegcn": "snapshot_ranking:EVOLVEGCN",
    "roland-fixed": "snapshot_ranking:ROLAND_FIXED",
    "roland-live": "live_update:LIVE",
    "tgbl-wiki": "tgb:WIKI",
    "tgcn-los-loop": "los_loop:LOS_LOOP",
    "utg": "utg:UTG",
}
"""Module and variable of each protocol of Strobe; the module is imported when the protocol is looked up."""

_PROTOCOLS: dict[str, Protocol] = {}


def register(protocol: ProtocolT, *, replace: bool = False) -> ProtocolT:
    """Make a protocol known by its name, to ``find_protocol`` and to ``strobe benchmark``.

    Args:
        protocol: the protocol.
        replace: whether it may take the place of another of the same name.

    Returns:
        The protocol.

    Raises:
        OptionError: the name is taken.
    """
    module, _, _ = BUILT_IN.get(protocol.name, "").partition(":")
    is_other = bool(module) and type(protocol).__module__ != f"{__package__}.{module}"
    if not replace and (is_other or _PROTOCOLS.get(protocol.name, protocol) != protocol):
        raise OptionError(f"there is a protocol named {protocol.name!r}: choose another name, or give replace=True")
    _PROTOCOLS[protocol.name] = protocol
    return protocol


def find_protocol(name: str) -> Protocol:
    """Return a protocol by its name.

    Raises:
        UnknownNameError: there is none; the message suggests the nearest name.
    """
    if name in _PROTOCOLS:
        return _PROTOCOLS[name]
    if name not in BUILT_IN:
        raise UnknownNameError("protocol", name, protocol_names())
    module, _, variable = BUILT_IN[name].partition(":")
    protocol: Protocol = getattr(import_module(f"{__package__}.{module}"), variable)
    return protocol


def protocol_names() -> list[str]:
    """Return the names of all protocols, in alphabetical order, without importing them."""
    return sorted({*BUILT_IN, *_PROTOCOLS})


def list_protocols() -> list[Protocol]:
    """Return all protocols, by name."""
    return [find_protocol(name) for name in protocol_names()]


def baseline_name(rule: str) -> str:
    """The name of a method that is a baseline of a link task; the same rules have the same names in all protocols."""
    return {"most recent": "most-recent-first"}.get(rule, rule.replace(" ", "-"))


@cache
def load_published() -> Mapping[tuple[str, str], tuple[PublishedRow, ...]]:
    """Read published.toml: rows per protocol and data set, in the order of the file."""
    content = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))
    return {
        (protocol, data): tuple(PublishedRow(**row) for row in rows)
        for protocol, by_data in content.items()
        for data, rows in by_data.items()
    }


def _join_settings(settings: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Join lists with a value per seed, also inside mappings; other settings are those of the first result."""
    first = settings[0]
    if isinstance(first, Mapping):
        return {name: _join_settings([each[name] for each in settings], sizes) for name in first}
    if all(isinstance(each, list) and len(each) == size for each, size in zip(settings, sizes, strict=True)):
        return list(chain(*settings))
    return first


def _values(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as JSON has them."""
    values = {each.name: _plain(getattr(record, each.name)) for each in fields(record)}
    return values if values["more"] else {name: value for name, value in values.items() if name != "more"}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return list(value) if isinstance(value, tuple) else value
