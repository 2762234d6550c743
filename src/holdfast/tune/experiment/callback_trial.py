"""A trial as callbacks, loggers and reporters see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.core.experiment.trial import PENDING, RUNNING, Trial
from holdfast.store.location import Location
from holdfast.train.checkpoint import Checkpoint
from holdfast.tune.experiment.trial_names import tag_of
from holdfast.tune.resources import PlacementGroupFactory


class TrialForCallbacks:
    """What callbacks, loggers and reporters see: the same trial, whose checkpoint is one that can be read."""

    __slots__ = ("_home", "_trial", "is_stopped", "local_path")

    def __init__(self, trial: Trial, home: Location, local_path: str) -> None:
        self._trial, self._home = trial, home
        self.local_path = local_path
        self.is_stopped = False  # the driver ends, and nothing of it runs any more

    @property
    def trial_id(self) -> str:
        return self._trial.trial_id

    @property
    def config(self) -> Mapping[str, Any]:
        return self._trial.config

    @property
    def evaluated_params(self) -> Mapping[str, Any]:
        return self._trial.evaluated_params

    @property
    def status(self) -> str:
        """After an interrupt a trial waits for the next driver, although the journal does not say so."""
        stopped = self.is_stopped and self._trial.status == RUNNING
        return PENDING if stopped else self._trial.status

    @property
    def last_result(self) -> Mapping[str, Any]:
        return self._trial.last_result

    @property
    def error(self) -> str | None:
        return self._trial.error

    @property
    def checkpoint(self) -> Checkpoint | None:
        name = self._trial.last_result.get("checkpoint_dir_name")
        return None if name is None else Checkpoint(self._home / "checkpoints" / name)

    @property
    def trainable_name(self) -> str:
        return self._trial.directory.partition(f"_{self._trial.trial_id}")[0]

    @property
    def experiment_tag(self) -> str:
        """The number of the trial and what was searched, as in "3_lr=0.0100"."""
        return tag_of(self._trial.trial_id, self._trial.evaluated_params)

    @property
    def path(self) -> str:
        """Where the trial is stored: a directory or a URL."""
        return str(self._home)

    @property
    def logdir(self) -> str:
        return self.local_path

    @property
    def placement_group_factory(self) -> PlacementGroupFactory:
        """What the trial needs."""
        return PlacementGroupFactory([dict(bundle) for bundle in self._trial.resources])

    @property
    def has_checkpoint(self) -> bool:
        return self.checkpoint is not None

    def is_finished(self) -> bool:
        """Whether it has ended, well or with an error."""
        return self._trial.has_ended

    def get_error(self) -> str | None:
        return self._trial.error

    def __str__(self) -> str:
        return self._trial.name

    def __repr__(self) -> str:
        return repr(self._trial)
