"""The third axis: which cells a step trains."""

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
    from strobe.batching.sampled import NeighborSampling
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
    """Something that happened between two epochs: a line of the record, and a note for the user."""

    name: str
    values: dict[str, Any]
    note: str | None = None


class StepResult(NamedTuple):
    """What one optimizer step came to: the summed loss of its examples, how many they were, and its seconds."""

    loss: float
    num_examples: float
    seconds: float


class EpochResult(NamedTuple):
    """What one epoch came to: the steps of this rank, the mean loss of all examples, and the validation metrics if they
    are known already."""

    num_steps: int
    loss: float
    metrics: Mapping[str, float] | None = None


class EpochPolicy:
    """How an epoch is trained: once. The base of policies that train an epoch several times and keep one outcome."""

    def run(self, train_epoch: Callable[[], EpochResult]) -> EpochResult:
        """Train one epoch."""
        return train_epoch()

    def log(self) -> dict[str, Any]:
        """What the epoch's line of the record says of the policy."""
        return {}

    def events(self) -> list[Event]:
        """What happened in the last epoch."""
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
        """Steps of this rank in an epoch, as far as it is known."""

    @property
    @abstractmethod
    def validation_windows(self) -> Iterable[Any]:
        """The windows that score the validation part."""

    @abstractmethod
    def epoch(self, epoch: int, pacer: Pacer) -> Iterator[dict[int, Any]]:
        """Yield the windows of each step of an epoch, by the number of their batch. A step is over when the next one is
        requested. ``pacer`` says when a rank that is not in lockstep ends its epoch."""

    def windows_of(self, job: Any, times: range, epoch: int) -> Iterator[dict[int, Any]]:
        """Yield the windows of each step over snapshots ``times`` of ``job``, the engine's job on a grown graph. For
        batchings that give "streaming batches"."""
        raise NotImplementedError(f"{type(self).__name__} makes no batches of snapshots that arrive")

    def local_partitions(self) -> list[Any]:
        """This rank's partitions of its training windows, whose exchanges keep state between epochs."""
        return []

    def start(self) -> None:  # noqa: B027
        """Training begins: background work may start."""

    def observe(self, result: StepResult, pacer: Pacer) -> None:  # noqa: B027
        """Take note of the outcome of a step."""

    def end_epoch(self, batch_spans: Sequence[Sequence[Any]]) -> list[Event]:
        """End an epoch. ``batch_spans`` says on rank 0 when each rank ran each batch. A source that changes its steps
        returns what happened."""
        del batch_spans
        return []

    def log(self) -> dict[str, Any]:
        """What the epoch's line of the record says of the source."""
        return {}

    def policy(self, run: Any) -> EpochPolicy:
        """How epochs of this source are trained. ``run`` is the engine's ``RunContext``."""
        del run
        return EpochPolicy()

    def artifacts(self) -> dict[str, Any]:
        """Facts about the steps that the result keeps, and that charts are drawn from, by name."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """The state of this rank as tensors and plain values; empty where steps follow from the seed and the epoch."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Continue from a saved state of the same rank."""

    def shared_state_dict(self) -> dict[str, Any] | None:
        """State that is the same on all ranks and survives another number of ranks; None without any."""
        return None

    def close(self) -> None:  # noqa: B027
        """Stop background work."""


class ChunkableWindow(Protocol):
    """A window whose structure stage can run chunk by chunk."""

    def run_in_chunks(self, cell_chunk: IntArray, memory_bytes: float, ledger: Ledger) -> None:
        """Run convolutions over chunks of cells, fused as far as memory allows."""
        ...


class SourceContext(Protocol):
    """What the engine offers to ``Batching.start``: the job, and the sources that the engine has."""

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

    def neighbor_sampling(self, sampling: NeighborSampling) -> StepSource:
        """Windows of sampled neighborhoods of some examples."""
        ...


@dataclass(frozen=True, kw_only=True)
class Batching(Strategy):
    """A way to cut the training cells into batches. An epoch has every training cell as a target once, or about as
    many targets as there are cells where batches are sampled."""

    needs_hops: ClassVar[bool] = False
    """Whether batches are subgraphs of seed nodes, so that it matters how far a model reads. The other end of a pair
    may then be in no batch."""

    @property
    def window(self) -> int | None:
        """Snapshots that are computed together where all cells are targets; None: all."""
        return None

    @property
    def history(self) -> int | None:
        """Snapshots that a batch reads at most; None: no limit, states are carried on."""
        return None

    @property
    def caches_windows(self) -> bool:
        """Whether windows are built once and cached for all epochs."""
        return True

    @property
    def uses_khop_cache(self) -> bool:
        """Whether windows are subgraphs of what a rank caches around its own nodes."""
        return False

    @property
    def depends_on_partition(self) -> bool:
        """Whether the steps of training depend on the partition, also on one rank. The partition is then computed from
        training snapshots alone: later ones must not change what is trained."""
        return False

    @property
    def needs_partition(self) -> bool:
        """Whether a partition is needed on one rank, too."""
        return self.depends_on_partition

    @property
    def not_simulated(self) -> str | None:
        """Why an epoch cannot be simulated; None where ``batches`` cost what training computes."""
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
        """The batches that score snapshots ``times``, where training reads a bounded history: each starts from an
        initial state and reads as many snapshots as a training batch. None: states are carried from the first snapshot
        on."""
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
