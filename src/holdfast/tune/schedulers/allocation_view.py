"""What a function that allocates resources sees: the experiment and its trials, under the names that Ray gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.tune.resources import PlacementGroupFactory

from .trial_scheduler import ExperimentView, TrialView


class AllocationTrial:
    """A ``TrialView`` with its resources as a ``PlacementGroupFactory``. Each call gets new ones; those of a trial are
    equal."""

    def __init__(self, trial: TrialView) -> None:
        self._trial = trial

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_trial" not in self.__dict__:  # while it is copied or unpickled
            raise AttributeError(name)
        return getattr(self._trial, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AllocationTrial) and self.trial_id == other.trial_id

    def __hash__(self) -> int:
        return hash(self.trial_id)

    @property
    def placement_group_factory(self) -> PlacementGroupFactory:
        return PlacementGroupFactory([dict(bundle) for bundle in self._trial.resources])


class ResourceUpdater:
    """The resources that all trials share, those in use included."""

    def __init__(self, total: Mapping[str, float]) -> None:
        self._total = total

    def get_num_cpus(self) -> float:
        return _whole(self._total.get("CPU", 0.0))

    def get_num_gpus(self) -> float:
        return _whole(self._total.get("GPU", 0.0))


class AllocationView:
    """An ``ExperimentView`` of such trials."""

    def __init__(self, experiment: ExperimentView) -> None:
        self._experiment = experiment

    def get_trials(self) -> Sequence[AllocationTrial]:
        return [AllocationTrial(trial) for trial in self._experiment.get_trials()]

    def get_live_trials(self) -> Sequence[AllocationTrial]:
        return [AllocationTrial(trial) for trial in self._experiment.get_live_trials()]

    def get_trial(self, trial_id: str) -> AllocationTrial | None:
        trial = self._experiment.get_trial(trial_id)
        return None if trial is None else AllocationTrial(trial)

    @property
    def total_resources(self) -> Mapping[str, float]:
        return self._experiment.total_resources

    @property
    def resource_updater(self) -> ResourceUpdater:
        return ResourceUpdater(self._experiment.total_resources)

    _resource_updater = resource_updater  # which Ray's own example reads


def _whole(amount: float) -> float:
    return int(amount) if amount == int(amount) else amount
