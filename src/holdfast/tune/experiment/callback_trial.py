"""A trial as callbacks, loggers and reporters see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.core.experiment.trial import Trial
from holdfast.store.location import Location
from holdfast.train.checkpoint import Checkpoint


class TrialForCallbacks:
    """What callbacks, loggers and reporters see: the same trial, whose checkpoint is one that can be read."""

    __slots__ = ("_home", "_trial", "local_path")

    def __init__(self, trial: Trial, home: Location, local_path: str) -> None:
        self._trial, self._home = trial, home
        self.local_path = local_path

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
        return self._trial.status

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

    def __str__(self) -> str:
        return self._trial.name

    def __repr__(self) -> str:
        return repr(self._trial)
