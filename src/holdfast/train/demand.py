"""A run's configuration as a demand on a cluster."""

from __future__ import annotations

from holdfast import settings
from holdfast.engine.demand import Demand

from .config import RunConfig
from .scaling_config import ScalingConfig

_ANY_AMOUNT = 0.001  # of a resource that only says what a node has, or of a CPU where a worker asks for nothing


def demand_of(scaling: ScalingConfig, run: RunConfig) -> Demand:
    resources = dict(scaling.worker_resources) or {"CPU": _ANY_AMOUNT}
    if scaling.accelerator_type:
        resources.setdefault(f"accelerator_type:{scaling.accelerator_type}", _ANY_AMOUNT)
    selector = scaling.label_selector or []
    labels = [selector] if isinstance(selector, dict) else selector
    return Demand(
        least=scaling.min_workers,
        most=scaling.max_workers,
        resources=resources,
        strategy=scaling.placement_strategy,
        labels=tuple(labels),
        runtime_env=run.worker_runtime_env,
        standby=settings.load().standby_nodes,
    )
