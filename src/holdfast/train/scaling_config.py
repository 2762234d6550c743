"""How many workers a run has, and what each of them needs. Checked once, when it is created."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from holdfast.train.checks import WrongTypeError, check_bool, check_int, check_number, check_type
from holdfast.train.trainer_resources import check_labels, check_resources

_PLACEMENT_STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


@dataclass
class ScalingConfig:
    """How many workers a run has, and what each of them needs.

    ``num_workers`` is a number, ``(min, max)`` for an elastic run, or 0 to run the function in this process.
    ``use_gpu`` gives each worker a GPU; ``resources_per_worker`` sets other amounts, as in ``{"CPU": 4, "GPU": 2}``. By
    default a worker takes one CPU. ``placement_strategy`` PACK puts workers on few nodes and SPREAD on many;
    STRICT_PACK and STRICT_SPREAD insist on it. ``accelerator_type`` and ``label_selector`` choose nodes of a Ray
    cluster. ``elastic_resize_monitor_interval_s`` is how long an attempt must have trained before it gets more workers.
    ``trainer_resources``, ``use_tpu`` and ``topology`` are accepted and have no effect; on a Ray cluster, the last two
    are rejected. ``standby_workers`` is the number of additional processes that run the function up to
    ``TrainState.resume()`` and wait there, to replace a worker that is lost in a ``recoverable`` step. They use memory,
    and no CPU while they wait.
    """

    trainer_resources: dict[str, float] | None = None
    num_workers: int | tuple[int, int] = 1
    use_gpu: bool = False
    resources_per_worker: dict[str, float] | None = None
    placement_strategy: str = "PACK"
    accelerator_type: str | None = None
    label_selector: dict[str, str] | list[dict[str, str]] | None = None
    use_tpu: bool = False
    topology: str | None = None
    elastic_resize_monitor_interval_s: float = 60.0
    standby_workers: int = 0

    def __post_init__(self) -> None:
        if searched_fields(self):
            return  # checked for each trial, with the drawn values
        self._check_num_workers()
        check_bool("ScalingConfig(use_gpu", self.use_gpu)
        check_bool("ScalingConfig(use_tpu", self.use_tpu)
        check_resources("ScalingConfig(trainer_resources", self.trainer_resources)
        check_resources("ScalingConfig(resources_per_worker", self.resources_per_worker)
        self._check_accelerators()
        check_int("ScalingConfig(standby_workers", self.standby_workers, least=0)
        if self.standby_workers and (self.use_gpu or self.use_tpu):
            raise ValueError(
                f"ScalingConfig(standby_workers={self.standby_workers}): standby workers take the place of workers on "
                "CPUs only; leave it out with use_gpu or use_tpu"
            )
        if self.accelerator_type is not None:
            check_type("ScalingConfig(accelerator_type", self.accelerator_type, str, 'pass a name, as in "A100"')
        if self.placement_strategy not in _PLACEMENT_STRATEGIES:
            raise ValueError(
                f"ScalingConfig(placement_strategy={self.placement_strategy!r}): "
                f"use one of {', '.join(_PLACEMENT_STRATEGIES)}"
            )
        check_number("ScalingConfig(elastic_resize_monitor_interval_s", self.elastic_resize_monitor_interval_s, least=0)
        check_labels("ScalingConfig(label_selector", self.label_selector)
        if isinstance(self.label_selector, list) and len(self.label_selector) != self.max_workers:
            raise ValueError(
                f"ScalingConfig(label_selector={self.label_selector!r}): a list has one entry for each of the "
                f"{self.max_workers} workers; pass that many, or one dict for all of them"
            )

    def _check_num_workers(self) -> None:
        given = self.num_workers
        if isinstance(given, (tuple, list)):
            if len(given) != 2 or any(isinstance(n, bool) or not isinstance(n, int) for n in given):
                raise WrongTypeError(f"ScalingConfig(num_workers={given!r}): an elastic range is two ints, (min, max)")
            low, high = given
            if not 1 <= low <= high:
                raise ValueError(f"ScalingConfig(num_workers={given!r}): an elastic range needs 1 <= min <= max")
            self.num_workers = (low, high)
            return
        check_int("ScalingConfig(num_workers", given, least=0, note=", or (min, max) for an elastic run")

    def _check_accelerators(self) -> None:
        if self.use_gpu and self.use_tpu:
            raise ValueError(
                "ScalingConfig(use_gpu=True, use_tpu=True): a worker has one kind of accelerator; pick one"
            )
        given = self.resources_per_worker or {}
        for name, used, flag in (("GPU", self.use_gpu, "use_gpu"), ("TPU", self.use_tpu, "use_tpu")):
            if not used and given.get(name, 0) > 0:
                raise ValueError(
                    f"ScalingConfig(resources_per_worker={given!r}): it asks for {name}, but {flag} is False; "
                    f"set {flag}=True or leave {name} out"
                )
            if used and given.get(name, 1) == 0:
                raise ValueError(
                    f"ScalingConfig(resources_per_worker={given!r}): {flag}=True, but {name} is 0; "
                    f"ask for at least one {name} or set {flag}=False"
                )

    @property
    def elasticity_enabled(self) -> bool:
        """Whether ``num_workers`` is a range."""
        return isinstance(self.num_workers, tuple)

    @property
    def min_workers(self) -> int:
        """The minimum number of workers."""
        return self.num_workers[0] if isinstance(self.num_workers, tuple) else self.num_workers

    @property
    def max_workers(self) -> int:
        """The maximum number of workers."""
        return self.num_workers[1] if isinstance(self.num_workers, tuple) else self.num_workers

    @property
    def worker_resources(self) -> dict[str, float]:
        """The resources of one worker: those requested, otherwise one accelerator or one CPU."""
        resources = {name: amount for name, amount in (self.resources_per_worker or {}).items() if amount != 0}
        if self.use_gpu:
            resources.setdefault("GPU", 1)
        elif self.use_tpu:
            resources.setdefault("TPU", 1)
        elif self.resources_per_worker is None:
            resources["CPU"] = 1
        return resources

    @property
    def num_cpus_per_worker(self) -> float:
        return self.worker_resources.get("CPU", 0)

    @property
    def num_gpus_per_worker(self) -> float:
        return self.worker_resources.get("GPU", 0)

    @property
    def num_tpus_per_worker(self) -> float:
        return self.worker_resources.get("TPU", 0)

    @property
    def additional_resources_per_worker(self) -> dict[str, float]:
        return {name: amount for name, amount in self._resources_with_type.items() if name not in ("CPU", "GPU")}

    @property
    def total_resources(self) -> dict[str, float]:
        """The resources of the whole run with its maximum number of workers."""
        return {name: amount * self.max_workers for name, amount in self._resources_with_type.items()}

    @property
    def _resources_with_type(self) -> dict[str, float]:
        """With the accelerator's type as Ray writes it."""
        kind = {f"accelerator_type:{self.accelerator_type}": 0.001} if self.accelerator_type else {}
        return {**self.worker_resources, **kind}


def searched_fields(scaling: ScalingConfig) -> dict[str, Any]:
    """Those that a search space is to fill: ``num_workers=tune.grid_search([1, 2])``."""
    given = {field.name: getattr(scaling, field.name) for field in fields(scaling)}
    return {name: value for name, value in given.items() if _is_searched(value)}


def _is_searched(value: Any) -> bool:
    """Whether it is, or contains, a grid or a domain of ``holdfast.tune``, which this folder does not import."""
    if isinstance(value, dict):
        return "grid_search" in value or any(map(_is_searched, value.values()))
    return hasattr(value, "domain_str")
