"""A run's configuration as a demand on a cluster."""

from __future__ import annotations

from holdfast import settings
from holdfast.engine.demand import Demand
from holdfast.train.config import RunConfig
from holdfast.train.scaling_config import ScalingConfig, searched_fields

_ANY_AMOUNT = 0.001  # the amount of a resource that only marks a node, or of a CPU if a worker requests nothing


def demand_of(scaling: ScalingConfig, run: RunConfig) -> Demand:
    searched = ", ".join(searched_fields(scaling))
    if searched:
        raise ValueError(
            f"ScalingConfig({searched}=...) has a search space as its value, which only a Tuner can search. "
            "Pass the ScalingConfig in Tuner(param_space=...)"
        )
    in_force = settings.load()
    if (run.engine or in_force.engine) == "ray" and scaling.num_workers != 0:
        _refuse_tpus(scaling)
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
        standby=in_force.standby_nodes,
    )


def _refuse_tpus(scaling: ScalingConfig) -> None:
    """Otherwise a run would wait forever for something that it cannot use."""
    for name, given in (("use_tpu", scaling.use_tpu), ("topology", scaling.topology)):
        if given:
            raise ValueError(
                f'ScalingConfig({name}={given!r}): there are no TPUs with engine="ray"; leave {name} out, and ask for '
                "CPUs or GPUs"
            )
