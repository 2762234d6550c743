"""Ways to distribute the resources of the cluster among the trials that have not ended. Resources are distributed in
units. A trial never has less than it started with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.metric_names import lookup, number
from holdfast.tune.resources import PlacementGroupFactory

from .trial_scheduler import ExperimentView, TrialView

if TYPE_CHECKING:
    from .resource_changing_scheduler import ResourceChangingScheduler

Bundles = tuple[dict[str, float], ...]


def bundles_of(resources: Any) -> Bundles:
    """The bundles of a list, of a single one, or of anything with ``bundles``; zeros are left out."""
    bundles = getattr(resources, "bundles", resources)
    if isinstance(bundles, Mapping):
        bundles = (bundles,)
    return tuple({name: float(amount) for name, amount in bundle.items() if amount} for bundle in bundles)


class DistributeResources:
    """Gives every trial the same number of units, as far as possible.

    A unit is ``increase_by``, or one GPU for trials with GPUs (for trials with a fraction of one, that fraction),
    otherwise one CPU. More than one GPU is rounded down to whole ones, because nothing else can be asked for. With
    ``add_bundles``, a unit is a whole bundle. ``increase_by_times`` is the maximum number of units of a trial; below 1
    means no limit. ``reserve_resources`` are left free.
    """

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: Mapping[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: Mapping[str, float] | None = None,
    ) -> None:
        name = type(self).__name__
        if increase_by is not None and (not any(increase_by.values()) or min(increase_by.values()) < 0):
            raise ValueError(f"{name}(increase_by={increase_by!r}): pass amounts above 0, such as {{'CPU': 1}}")
        self.add_bundles = add_bundles
        self.increase_by = dict(increase_by or {})
        self.increase_by_times = increase_by_times
        self.reserve_resources = dict(reserve_resources or {})

    def __call__(
        self,
        experiment: ExperimentView,
        trial: TrialView,
        result: Mapping[str, Any],
        scheduler: ResourceChangingScheduler,
    ) -> PlacementGroupFactory | None:
        base = bundles_of(scheduler.base_trial_resources or trial.resources)
        if not self.add_bundles and len(base) != 1:
            raise ValueError(
                f"{type(self).__name__}(add_bundles=False): trials have {len(base)} bundles and must have one; "
                "pass add_bundles=True"
            )
        unit = self._unit(base)
        units = self._units_for(experiment, trial, scheduler, base, unit)
        if self.add_bundles:
            return PlacementGroupFactory(base + (unit,) * units)
        return PlacementGroupFactory([_valid(_sum([base[0], *[unit] * units]))])

    def _unit(self, base: Bundles) -> dict[str, float]:
        if self.increase_by:
            return bundles_of(self.increase_by)[0]
        if self.add_bundles:
            return base[-1]
        gpus = base[0].get("GPU", 0.0)
        if gpus:
            return {"GPU": 1.0 if gpus == int(gpus) else gpus}
        return {"CPU": 1.0}

    def _units_for(
        self,
        experiment: ExperimentView,
        trial: TrialView,
        scheduler: ResourceChangingScheduler,
        base: Bundles,
        unit: dict[str, float],
    ) -> int:
        """How many units the trial should have: its share, but not more than it has plus the free ones."""
        live = experiment.get_live_trials()
        spare = self._left(experiment, [base] * len(live))
        share = math.ceil(_times(spare, unit) / max(1, len(live)))
        return max(0, min(self._within_limit(share), self._held_and_free(experiment, trial, base, unit)))

    def _held_and_free(
        self, experiment: ExperimentView, trial: TrialView, base: Bundles, unit: dict[str, float]
    ) -> int:
        return self._held(trial, base, unit) + self._free(experiment, unit)

    def _held(self, trial: TrialView, base: Bundles, unit: dict[str, float]) -> int:
        more = _sum(bundles_of(trial.resources))
        for name, amount in _sum(base).items():
            more[name] = more.get(name, 0.0) - amount
        return max(0, _times(more, unit))

    def _free(self, experiment: ExperimentView, unit: dict[str, float]) -> int:
        """Units that no trial has; below 0 if trials have more than there is."""
        used = [bundles_of(other.resources) for other in experiment.get_live_trials()]
        return _times(self._left(experiment, used), unit)

    def _left(self, experiment: ExperimentView, taken: Sequence[Bundles]) -> dict[str, float]:
        left = dict(experiment.total_resources)
        for bundle in [self.reserve_resources, *(bundle for bundles in taken for bundle in bundles)]:
            for name, amount in bundle.items():
                left[name] = left.get(name, 0.0) - amount
        return left

    def _within_limit(self, units: int) -> int:
        return min(units, self.increase_by_times) if self.increase_by and self.increase_by_times > 0 else units


class DistributeResourcesToTopJob(DistributeResources):
    """Gives all free resources to the best trial that may have more. The others keep what they have."""

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: Mapping[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: Mapping[str, float] | None = None,
        metric: str | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__(add_bundles, increase_by, increase_by_times, reserve_resources)
        if mode not in (None, "min", "max"):
            raise ValueError(f'DistributeResourcesToTopJob(mode={mode!r}): must be "min" or "max"')
        self.metric = metric
        self.mode = mode

    def _units_for(
        self,
        experiment: ExperimentView,
        trial: TrialView,
        scheduler: ResourceChangingScheduler,
        base: Bundles,
        unit: dict[str, float],
    ) -> int:
        metric, mode = self.metric or scheduler.metric, self.mode or scheduler.mode
        if metric is None or mode is None:
            raise ValueError("DistributeResourcesToTopJob needs a metric and a mode: pass them to it or to TuneConfig")

        def rank(other: TrialView) -> float:
            value = number(lookup(other.last_result, metric))
            return -math.inf if value is None or not math.isfinite(value) else value if mode == "max" else -value

        held, free = self._held(trial, base, unit), self._free(experiment, unit)
        ranked = sorted(experiment.get_live_trials(), key=rank, reverse=True)
        growing = [t for t in ranked if self._within_limit(self._held(t, base, unit) + 1) > self._held(t, base, unit)]
        best = (growing or ranked or [trial])[0]
        if trial.trial_id != best.trial_id and free >= 0:
            return held
        return max(0, self._within_limit(held + free))


def _sum(bundles: Sequence[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for bundle in bundles:
        for name, amount in bundle.items():
            total[name] = total.get(name, 0.0) + amount
    return total


def _valid(bundle: dict[str, float]) -> dict[str, float]:
    """With a fraction of one GPU, or a whole number of GPUs."""
    gpus = bundle.get("GPU", 0.0)
    return {**bundle, "GPU": float(math.floor(gpus + 1e-9))} if gpus > 1 else bundle


def _times(resources: Mapping[str, float], unit: Mapping[str, float]) -> int:
    """How often the unit fits into the resources; below 0 if they are below 0."""
    return min(math.floor(resources.get(name, 0.0) / amount + 1e-9) for name, amount in unit.items())
