"""Makes the source of a run's steps, and saves and loads its state."""

from __future__ import annotations

from typing import Any

from strobe.batching.base import StepSource
from strobe.batching.sampled import Sampled
from strobe.batching.subgraph_sampler import SubgraphSampler
from strobe.batching.trapezoid import Decay, DecaySearchOptions
from strobe.comm import Comm
from strobe.engine.checkpoint.serialization import same_structure
from strobe.engine.checkpoint.store import loading
from strobe.engine.job import Job
from strobe.engine.settings import ONLINE_ONLY, Settings
from strobe.engine.sources.arriving import ArrivingSnapshotsSource
from strobe.engine.sources.neighbor_sampling import NeighborSamplingSource
from strobe.engine.sources.prepared import PreparedSource
from strobe.engine.sources.reservoir import ReservoirSource
from strobe.engine.sources.sliding import SlidingWindowSource
from strobe.errors import FormatError, OptionError


class EngineSources:
    """The engine's side of ``Batching.start``. ``saved`` is the source's part of a checkpoint, if a run is resumed."""

    def __init__(self, job: Job, saved: dict[str, Any] | None = None) -> None:
        self._job = job
        self._check(job.settings)
        with loading("the checkpoint's batches"):
            self._saved = None if saved is None else saved["shared"]

    def _check(self, settings: Settings) -> None:
        """Refuse settings that have no meaning in this kind of run."""
        for name in ONLINE_ONLY:
            if getattr(settings, name) != getattr(Settings(), name):
                raise OptionError(f"{name} is for snapshots that arrive one by one (strobe online): leave it out here")

    @property
    def job(self) -> Job:
        return self._job

    def prepared(self) -> StepSource:
        return PreparedSource(self.job, self._saved)

    def reservoir(self, sampler: SubgraphSampler) -> StepSource:
        return ReservoirSource(self.job, sampler)

    def sliding_windows(self, decay: Decay, search: DecaySearchOptions | None) -> StepSource:
        return SlidingWindowSource(self.job, decay, search)

    def neighbor_sampling(self, sampling: Sampled) -> StepSource:
        return NeighborSamplingSource(self.job, sampling)


class OnlineSources(EngineSources):
    """The same for runs whose snapshots arrive: windows of whole snapshots are built when they do."""

    def _check(self, settings: Settings) -> None:
        pass

    def prepared(self) -> StepSource:
        return ArrivingSnapshotsSource(self.job)


def source_state(source: StepSource, comm: Comm) -> dict[str, Any] | None:
    """A source's part of a checkpoint, on rank 0: the states of all ranks, and what they share. All ranks call it."""
    own, shared = source.state_dict(), source.shared_state_dict()
    ranks = comm.gather_object(own, kind="setup") if own else None
    return None if ranks is None and shared is None else {"ranks": ranks, "shared": shared}


def load_source_state(source: StepSource, saved: dict[str, Any] | None, comm: Comm) -> None:
    """Continue from the state of this rank; on another number of ranks the source starts from the beginning."""
    with loading("the checkpoint's batches"):
        ranks = None if saved is None else saved["ranks"]
        if ranks is None or len(ranks) != comm.num_ranks:
            return
        if not same_structure(ranks[comm.rank], source.state_dict()):
            raise FormatError("the checkpoint's batches are damaged: names or types differ from this run's")
        source.load_state_dict(ranks[comm.rank])
