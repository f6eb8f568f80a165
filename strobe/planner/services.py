"""Presets by name and the planner's estimates, for the engine."""

from __future__ import annotations

from dataclasses import replace

from strobe.engine.inputs.resolve import TrainRequest
from strobe.engine.job import Job
from strobe.engine.services import PeakBytes, Services
from strobe.io.cache import Cache
from strobe.ops.sparse.csr import FloatArray
from strobe.placement.model_costs import LoadModel
from strobe.plan import Plan
from strobe.planner.downsample import estimate_run_seconds
from strobe.planner.memory import check_memory, estimate_peak_memory, upper_bound_bytes
from strobe.planner.time.passes import predict_batch_seconds
from strobe.planner.time.predictor_cache import get_predicted_loads
from strobe.presets import DEFAULT_ONLINE, preset

MEASURED_SHARE = 0.05
"""Part of the expected run that measuring its costs may take."""


class PlannerServices(Services):
    """What the planner and presets add to a run."""

    estimates_memory = True

    def plan(self, name: str) -> Plan:
        return preset(name)

    def online_plan(self) -> Plan:
        return preset(DEFAULT_ONLINE)

    def predicted_loads(self, job: Job) -> LoadModel:
        return get_predicted_loads(
            job.choice,
            job.problem.graph,
            device=job.device,
            dtype=job.settings.dtype,
            progress=job.progress,
            cache=job.graph_results.cache,
            budget=lambda: MEASURED_SHARE * estimate_run_seconds(job),
        )

    def predict_batch_seconds(self, job: Job) -> FloatArray:
        return predict_batch_seconds(job)

    def check_batch_memory(self, job: Job) -> None:
        check_memory(job)

    def upper_bound_bytes(self, job: Job) -> FloatArray:
        return upper_bound_bytes(job)

    def estimate_peak_memory(self, job: Job, room: float) -> PeakBytes:
        estimate = estimate_peak_memory(job, room)
        return PeakBytes(estimate.resident, estimate.offloaded)


def with_planner(request: TrainRequest) -> TrainRequest:
    """A request with the planner's estimates and the user's cache, for what is estimated and not trained."""
    return replace(request, services=PlannerServices(), cache=Cache.of_user())
