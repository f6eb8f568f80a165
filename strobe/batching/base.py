"""Batching axis: which cells each optimizer step trains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.ops.sparse.csr import IntArray
from strobe.strategy import Strategy

if TYPE_CHECKING:
    from strobe.batching.sampled import Sampled
    from strobe.batching.subgraph_sampler import SubgraphSampler
    from strobe.batching.trapezoid import Decay, DecaySearchOptions
    from strobe.comm import Ledger
    from strobe.schedule.base import Pacer


@dataclass(frozen=True, eq=False)
class BatchSpec:
    """The cells of a step: those of snapshots ``times``; ``target_times``, a part of them, have examples.

    ``seed_nodes`` are the nodes with examples (None: all); the batch is then the subgraph of their cells and of the
    cells those read in ``hops`` sparse products. ``continues_state``: states are carried from the previous batch;
    otherwise they start from the initial state.
    """

    times: range
    target_times: range
    seed_nodes: IntArray | None = None
    hops: int = 0
    continues_state: bool = True


class Event(NamedTuple):
    """An event between two epochs: a line of the record, and an optional note for the user."""

    name: str
    values: dict[str, Any]
    note: str | None = None


class StepResult(NamedTuple):
    """Result of an optimizer step: summed loss, number of examples, and seconds."""

    loss: float
    num_examples: float
    seconds: float


class EpochResult(NamedTuple):
    """Result of an epoch: steps of this rank, mean loss of all examples, and validation metrics if already known."""

    num_steps: int
    loss: float
    metrics: Mapping[str, float] | None = None


class EpochPolicy:
    """Trains an epoch once. Subclasses may train it several times and keep the best result."""

    def run(self, train_epoch: Callable[[], EpochResult]) -> EpochResult:
        """Train one epoch."""
        return train_epoch()

    def log(self) -> dict[str, Any]:
        """Values of the policy for the epoch's line of the record."""
        return {}

    def events(self) -> list[Event]:
        """Events of the last epoch."""
        return []

    def state_dict(self) -> dict[str, Any] | None:
        """The state, the same on all ranks; None without any."""
        return None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""


class StepSource(ABC):
    """The windows of each optimizer step on this rank. Made once per run by ``Batching.start``.

    A user's own source is a subclass; ``examples/own_batching.py`` shows one.
    """

    ranks_share_cells: bool = True
    """Whether ranks compute different cells of the same batches. Otherwise every rank has batches of its own, and
    buffers of the model (moments of batch norms) are averaged over ranks."""

    @property
    @abstractmethod
    def steps_per_epoch(self) -> int:
        """Expected number of steps of this rank in an epoch."""

    @property
    @abstractmethod
    def validation_windows(self) -> Iterable[Any]:
        """The windows that score the validation part."""

    @abstractmethod
    def epoch(self, epoch: int, pacer: Pacer) -> Iterator[dict[int, Any]]:
        """Yield the windows of each step of an epoch, by the number of their batch. A step ends when the next one is
        requested. ``pacer`` ends the epoch of a rank that is not in lockstep."""

    def local_partitions(self) -> list[Any]:
        """This rank's partitions of its training windows, whose exchanges keep state between epochs."""
        return []

    def start(self) -> None:  # noqa: B027
        """Called when training begins: background work may start."""

    def observe(self, result: StepResult, pacer: Pacer) -> None:  # noqa: B027
        """Called with the result of each step."""

    def end_epoch(self, batch_spans: Sequence[Sequence[Any]]) -> list[Event]:
        """End an epoch. ``batch_spans``: on rank 0, when each rank ran each batch. Returns changes of the steps as
        events."""
        del batch_spans
        return []

    def log(self) -> dict[str, Any]:
        """Values of the source for the epoch's line of the record."""
        return {}

    def policy(self, run: Any) -> EpochPolicy:
        """How epochs of this source are trained. ``run`` is the engine's ``RunContext``."""
        del run
        return EpochPolicy()

    def artifacts(self) -> dict[str, Any]:
        """Facts about the steps for the result and its charts, by name."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """State of this rank as tensors and plain values; empty if steps depend on seed and epoch only."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Continue from a saved state of the same rank."""

    def shared_state_dict(self) -> dict[str, Any] | None:
        """State that is the same on all ranks and survives another number of ranks; None without any."""
        return None

    def close(self) -> None:  # noqa: B027
        """Stop background work."""


class StreamingSource(StepSource):
    """A source that also makes batches of snapshots that arrive one by one, in order of time. For batchings that give
    "streaming batches". ``job`` is always the engine's job on the graph that has arrived."""

    @property
    def carried_states(self) -> Any | None:
        """States after the last snapshot that ``advance`` was called with; None: passes start from initial states."""
        return None

    @abstractmethod
    def windows_of(self, job: Any, times: range, epoch: int) -> Iterator[dict[int, Any]]:
        """Yield the windows of each step over snapshots ``times``. Examples may be resampled for every ``epoch``."""

    def evaluation_windows(self, job: Any, times: range) -> Iterable[Any]:
        """The windows that score snapshots ``times`` before they are trained on, from ``carried_states``."""
        windows: Iterable[Any] = job.evaluation_windows(times)
        return windows

    def snapshot_validation_windows(self, job: Any, times: range) -> Iterable[Any]:
        """Windows with the examples of snapshots ``times`` that ``windows_of`` leaves out; none by default."""
        del job, times
        return ()

    def advance(self, job: Any, times: range, model: Any, head: Any) -> None:
        """Snapshots ``times`` have been trained on: carry states to the next snapshot, with the weights as they are."""


class ChunkableWindow(Protocol):
    """A window whose structure stage can run chunk by chunk."""

    def run_in_chunks(self, cell_chunk: IntArray, memory_bytes: float, ledger: Ledger) -> None:
        """Run convolutions over chunks of cells, fused as far as memory allows."""
        ...


class SourceContext(Protocol):
    """The engine's interface for ``Batching.start``: the job, and constructors of step sources."""

    @property
    def job(self) -> Any:
        """The engine's ``Job``: graph, task, model, plan, settings, ranks."""
        ...

    def prepared(self) -> StepSource:
        """Windows of fixed batches, built before training and cached."""
        ...

    def reservoir(self, sampler: SubgraphSampler) -> StepSource:
        """Subgraphs sampled in the background, reused from a reservoir."""
        ...

    def sliding_windows(self, decay: Decay, search: DecaySearchOptions | None) -> StepSource:
        """Windows that slide over time and keep ever fewer nodes of older snapshots."""
        ...

    def neighbor_sampling(self, sampling: Sampled) -> StepSource:
        """Windows of sampled neighborhoods of some examples."""
        ...


@dataclass(frozen=True, kw_only=True)
class Batching(Strategy):
    """Divides the training cells into batches. In an epoch every training cell is a target once; sampled batches have
    about as many targets as there are cells."""

    needs_hops: ClassVar[bool] = False
    """Whether batches are subgraphs of seed nodes, whose size depends on the model's hops. The other end of a pair may
    then be in no batch."""

    @property
    def window(self) -> int | None:
        """Snapshots per window if all cells are targets; None: all."""
        return None

    @property
    def history(self) -> int | None:
        """Maximum number of snapshots that a batch reads; None: no limit, states are carried between batches."""
        return None

    @property
    def caches_windows(self) -> bool:
        """Whether windows are built once and cached for all epochs."""
        return True

    @property
    def uses_khop_cache(self) -> bool:
        """Whether windows are subgraphs of the rank's k-hop cache."""
        return False

    @property
    def depends_on_partition(self) -> bool:
        """Whether training steps depend on the partition, also on one rank. The partition is then computed from
        training snapshots only, so that later ones do not affect training."""
        return False

    @property
    def needs_partition(self) -> bool:
        """Whether a partition is needed even on one rank."""
        return self.depends_on_partition

    @property
    def not_simulated(self) -> str | None:
        """Why an epoch cannot be simulated; None if it can."""
        return None

    def start(self, context: SourceContext) -> StepSource:
        """Make the source of this rank's steps. All ranks call it."""
        return context.prepared()

    def structure_stage(self, data: ChunkableWindow, cell_chunk: Callable[[], IntArray], ledger: Ledger) -> None:
        """Choose how the structure stage of a window runs; ``cell_chunk`` gives the chunk of each of its cells.
        By default all cells are computed at once."""

    def with_window(self, size: int) -> Batching:
        """The same batching with ``size`` snapshots at a time."""
        raise OptionError(f"batching {self} is not cut into windows of {size}: leave --window out")

    def evaluation_batches(self, times: range) -> list[BatchSpec] | None:
        """Batches for evaluating snapshots ``times`` if training reads a bounded history: each starts from the initial
        state and reads as many snapshots as a training batch. None: states are carried from the first snapshot on."""
        del times
        return None

    @abstractmethod
    def batches(self, graph: DynamicGraph, times: range, *, hops: int, seed: int = 0) -> list[BatchSpec]:
        """The batches of an epoch over snapshots ``times``, for a model with ``hops`` sparse products in a row."""


def build_sliding_windows(times: range, size: int, first: int = 0) -> list[BatchSpec]:
    """For each of ``times`` a batch of the last ``size`` snapshots up to it, none before ``first``, with an initial
    state; only the last snapshot has examples."""
    return [BatchSpec(range(max(t + 1 - size, first), t + 1), range(t, t + 1), continues_state=False) for t in times]


def split_times(times: range, size: int | None) -> list[range]:
    """Split ``times`` into consecutive ranges of at most ``size`` snapshots."""
    step = size or max(len(times), 1)
    return [times[start : start + step] for start in range(0, len(times), step)]
