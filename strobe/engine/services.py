"""What the layers above the engine add to a run. The engine imports none of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from strobe.errors import OptionError
from strobe.ops.sparse.csr import FloatArray

if TYPE_CHECKING:
    from strobe.engine.job import Job
    from strobe.engine.online.result import OnlineResult
    from strobe.engine.records.timing import EpochTrace
    from strobe.engine.run import Run
    from strobe.placement.model_costs import LoadModel
    from strobe.plan import Plan


class PeakBytes(NamedTuple):
    """Predicted peak device memory: with all windows resident, and with windows offloaded to the host."""

    resident: int
    offloaded: int


class Services:
    """Presets by name, estimates of memory and time, summaries and charts. This base has none of them: plans are given
    as values, memory is not estimated, nothing is drawn. ``strobe.api`` passes the full set."""

    estimates_memory: bool = False
    """Whether memory is estimated before training: otherwise windows stay on the device."""

    def plan(self, name: str) -> Plan:
        """The plan of a preset."""
        raise OptionError(f"a plan is given as a Plan here, not as the name {name!r}: strobe.presets makes one")

    def online_plan(self) -> Plan:
        """The plan of a run whose snapshots arrive, where the user names none."""
        raise OptionError("say which plan to use")

    def predicted_loads(self, job: Job) -> LoadModel:
        """Seconds of sets of cells, for placements that balance predicted time."""
        raise OptionError(f"placement {job.plan.placement} needs predicted loads: train with strobe.train")

    def predict_batch_seconds(self, job: Job) -> FloatArray:
        """Seconds of every batch, [B], for schedules that balance predicted time."""
        raise OptionError(f"schedule {job.plan.schedule} needs predicted seconds: train with strobe.train")

    def check_batch_memory(self, job: Job) -> None:
        """Refuse a job with a batch that does not fit into the memory of the rank that computes it."""

    def upper_bound_bytes(self, job: Job) -> FloatArray:
        """More bytes than a pass over every batch takes, [B], without running one."""
        raise NotImplementedError

    def estimate_peak_memory(self, job: Job, room: float) -> PeakBytes:
        """Peak device memory of a job's ranks, exact enough to say whether it fits into ``room`` bytes."""
        raise NotImplementedError

    def summary(self, result: Mapping[str, Any]) -> str:
        """A finished run as text."""
        return f"{result['model']} on {result['graph']}: test {result['test']}"

    def learning_curve(self, run: Run) -> str:
        """The learning curve of a run (SVG)."""
        raise NotImplementedError

    def charts(self, run: Run, artifacts: Mapping[str, Any], trace: EpochTrace) -> dict[str, str | None]:
        """Charts of a run directory by file name; None where there is nothing to draw."""
        del run, artifacts, trace
        return {}

    def online_summary(self, result: OnlineResult) -> str:
        """A run whose snapshots arrived as text."""
        return f"{result.model} on {result.graph}: {result.metrics}"

    def online_chart(self, result: OnlineResult) -> str | None:
        """The metric of each snapshot that arrived (SVG)."""
        del result
        return None
