"""Gives running trials more resources when some are free, around any other scheduler.

When the other scheduler lets a trial continue, a function returns the resources that it should have. If they differ
from its current ones, the trial pauses and restarts with them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.tune.resources import PlacementGroupFactory

from .allocation_view import AllocationTrial, AllocationView
from .decision import Decision, Resize
from .distribute import Bundles, DistributeResources, DistributeResourcesToTopJob, bundles_of
from .trial_scheduler import ExperimentView, FIFOScheduler, Requests, TrialScheduler, TrialView

__all__ = ["DistributeResources", "DistributeResourcesToTopJob", "ResourceChangingScheduler"]

# Called with an ``AllocationView``, the trial, its result and the scheduler; returns a ``PlacementGroupFactory``,
# bundles, one dict, or None to leave the trial as it is.
AllocationFunction = Callable[[Any, Any, Any, Any], Any]
_EVENLY = DistributeResources()


class ResourceChangingScheduler(TrialScheduler):
    def __init__(
        self,
        base_scheduler: TrialScheduler | None = None,
        resources_allocation_function: AllocationFunction | None = _EVENLY,
    ) -> None:
        if resources_allocation_function is None:
            warnings.warn(
                "ResourceChangingScheduler(resources_allocation_function=None): no trial's resources will ever change",
                stacklevel=2,
            )
        self._base = base_scheduler or FIFOScheduler()
        self._allocate = resources_allocation_function
        self._base_resources: Bundles | None = None
        self.accepts_searcher = self._base.accepts_searcher
        self.needs_population = self._base.needs_population

    @property
    def metric(self) -> str | None:
        return self._base.metric

    @property
    def mode(self) -> str | None:
        return self._base.mode

    @property
    def base_trial_resources(self) -> PlacementGroupFactory | None:
        """The resources with which every trial starts; None before the first trial."""
        return None if self._base_resources is None else PlacementGroupFactory(self._base_resources)

    _base_trial_resources = base_trial_resources  # which Ray's own example reads

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        return self._base.set_search_properties(metric, mode, **spec)

    def on_trial_add(self, experiment: ExperimentView, trial: TrialView) -> Requests:
        if self._base_resources is None:
            self._base_resources = bundles_of(trial.resources)
        return self._base.on_trial_add(experiment, trial)

    def on_trial_result(self, experiment: ExperimentView, trial: TrialView, result: Mapping[str, Any]) -> Decision:
        decision = Decision.of(self._base.on_trial_result(experiment, trial, result))
        if decision != "CONTINUE" or self._allocate is None:
            return decision
        wanted = self._allocate(AllocationView(experiment), AllocationTrial(trial), result, self)
        if wanted is None or bundles_of(wanted) == bundles_of(trial.resources):
            return decision
        resize = Resize(trial.trial_id, bundles_of(wanted))
        return Decision("PAUSE", f"starts again with {_shown(resize.resources)}", (*decision.requests, resize))

    def on_trial_complete(self, experiment: ExperimentView, trial: TrialView, result: Mapping[str, Any]) -> Requests:
        return self._base.on_trial_complete(experiment, trial, result)

    def on_trial_error(self, experiment: ExperimentView, trial: TrialView) -> Requests:
        return self._base.on_trial_error(experiment, trial)

    def on_trial_remove(self, experiment: ExperimentView, trial: TrialView) -> Requests:
        return self._base.on_trial_remove(experiment, trial)

    def on_idle(self, experiment: ExperimentView) -> Requests:
        return self._base.on_idle(experiment)

    def choose_trial_to_run(self, experiment: ExperimentView) -> TrialView | None:
        return self._base.choose_trial_to_run(experiment)

    def debug_string(self) -> str:
        return f"ResourceChangingScheduler around {self._base.debug_string()}"


def _shown(bundles: Sequence[Mapping[str, float]]) -> str:
    return " + ".join(", ".join(f"{amount:g} {name}" for name, amount in bundle.items()) for bundle in bundles)
