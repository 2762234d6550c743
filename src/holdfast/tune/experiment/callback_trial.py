"""A trial as callbacks, loggers and reporters see it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from holdfast.core.experiment import trial as statuses
from holdfast.core.experiment.trial import ERROR, PENDING, RUNNING, Trial
from holdfast.store.location import Location
from holdfast.train.checkpoint import Checkpoint
from holdfast.tune.experiment.metric_summary import MetricSummary
from holdfast.tune.experiment.trial_names import tag_of
from holdfast.tune.resources import PlacementGroupFactory
from holdfast.tune.result import EXPR_ERROR_FILE


class TrialForCallbacks:
    """What callbacks, loggers and reporters see: the same trial, whose checkpoint is one that can be read."""

    # What a status is compared with
    PENDING, RUNNING, PAUSED = statuses.PENDING, statuses.RUNNING, statuses.PAUSED
    TERMINATED, ERROR = statuses.TERMINATED, statuses.ERROR
    __slots__ = ("_home", "_trial", "is_stopped", "local_path", "num_failures", "summary")

    def __init__(self, trial: Trial, home: Location, local_path: str) -> None:
        self._trial, self._home = trial, home
        self.local_path = local_path
        self.is_stopped = False  # the driver ends, and no trial runs
        self.num_failures = int(trial.status == ERROR)  # that this driver has seen
        self.summary: MetricSummary | None = None  # if a callback may ask for it

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
        """The trial's status. After an interrupt it waits for the next driver, although the journal does not say so."""
        stopped = self.is_stopped and self._trial.status == RUNNING
        return PENDING if stopped else self._trial.status

    @property
    def last_result(self) -> Mapping[str, Any]:
        return self._trial.last_result

    @property
    def error(self) -> str | None:
        return self._trial.error

    @property
    def error_file(self) -> str | None:
        """The file that contains the error; None if the trial has not failed."""
        path = os.path.join(self.local_path, EXPR_ERROR_FILE)
        return path if self._trial.status == ERROR and os.path.exists(path) else None

    @property
    def metric_analysis(self) -> dict[str, dict[str, float]]:
        """For each numeric metric its "max", "min", "avg", "last", "last-5-avg" and "last-10-avg", of the results
        that this driver has seen."""
        return {} if self.summary is None else self.summary.analysis

    @property
    def checkpoint(self) -> Checkpoint | None:
        name = self._trial.last_result.get("checkpoint_dir_name")
        return None if name is None else Checkpoint(self._home / "checkpoints" / name)

    @property
    def trainable_name(self) -> str:
        return self._trial.directory.partition(f"_{self._trial.trial_id}")[0]

    @property
    def experiment_tag(self) -> str:
        """The number of the trial and its searched parameters, as in "3_lr=0.0100"."""
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
        """The resources of the trial."""
        return PlacementGroupFactory([dict(bundle) for bundle in self._trial.resources])

    @property
    def local_experiment_path(self) -> str:
        """The experiment's directory on the driver's machine."""
        return os.path.dirname(self.local_path)

    local_dir = local_experiment_path

    @property
    def remote_experiment_path(self) -> str:
        """Where the experiment is stored: a directory or a URL."""
        return self.path.rstrip("/").rpartition("/")[0]

    @property
    def experiment_dir_name(self) -> str:
        return os.path.basename(self.local_experiment_path)

    @property
    def node_ip(self) -> str | None:
        return self._trial.last_result.get("node_ip")

    @property
    def is_saving(self) -> bool:
        """Always False: a callback is called for a checkpoint when it is committed."""
        return False

    @property
    def is_restoring(self) -> bool:
        return False

    def has_checkpoint(self) -> bool:
        return self.checkpoint is not None

    def has_reported_at_least_once(self) -> bool:
        return bool(self._trial.last_result)

    def is_finished(self) -> bool:
        """Whether the trial has finished or failed."""
        return self._trial.has_ended

    def get_error(self) -> str | None:
        return self._trial.error

    def __str__(self) -> str:
        return self._trial.name

    def __repr__(self) -> str:
        return repr(self._trial)
