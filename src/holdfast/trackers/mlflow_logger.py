"""Trials as runs in MLflow. Only the driver talks to the tracking server, never a trial."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

from holdfast.core.metric_names import TRAINING_ITERATION, flat_items, number
from holdfast.trackers.logger_callback import LoggerCallback
from holdfast.trackers.trial_callback import Trial

TRIAL_TAG = "holdfast.trial"  # a restored experiment finds the run of a trial by this tag


class MLflowLoggerCallback(LoggerCallback):
    """Logs each trial to an MLflow run: the config as parameters, the numbers of the results as metrics.

    It creates the experiment ``experiment_name`` if none has that name. ``save_artifact`` uploads the trial's directory
    when the trial finishes. ``log_params_on_trial_end`` logs the config at that time, for schedulers that change it.
    """

    def __init__(
        self,
        tracking_uri: str | None = None,
        *,
        registry_uri: str | None = None,
        experiment_name: str | None = None,
        tags: dict[str, Any] | None = None,
        tracking_token: str | None = None,
        save_artifact: bool = False,
        log_params_on_trial_end: bool = False,
    ) -> None:
        self._tracking_uri, self._registry_uri = tracking_uri, registry_uri
        self._experiment_name = experiment_name
        self._tags = dict(tags or {})
        self._tracking_token = tracking_token
        self._save_artifact = save_artifact
        self._params_at_end = log_params_on_trial_end
        self._client: Any = None
        self._experiment_id = ""
        self._runs: dict[str, str] = {}

    def setup(self, *args: Any, **info: Any) -> None:
        try:
            tracking = importlib.import_module("mlflow.tracking")
        except ImportError as error:
            raise ImportError("MLflowLoggerCallback needs mlflow: run pip install mlflow") from error
        if self._tracking_token:
            os.environ["MLFLOW_TRACKING_TOKEN"] = self._tracking_token  # MLflow offers no other way
        self._client = tracking.MlflowClient(tracking_uri=self._tracking_uri, registry_uri=self._registry_uri)
        name = self._experiment_name or "Default"
        known = self._client.get_experiment_by_name(name)
        self._experiment_id = known.experiment_id if known is not None else self._client.create_experiment(name)

    def log_trial_start(self, trial: Trial) -> None:
        if trial.trial_id not in self._runs:
            self._runs[trial.trial_id] = self._find_run(trial) or self._create_run(trial)
            if not self._params_at_end:
                self._log_params(trial)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        self.log_trial_start(trial)
        step = int(result.get("timesteps_total") or result.get(TRAINING_ITERATION) or 0)
        for name, value in numbers(result).items():
            self._client.log_metric(self._runs[trial.trial_id], name, value, step=step)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        self.log_trial_start(trial)
        if self._params_at_end:
            self._log_params(trial)
        run = self._runs.pop(trial.trial_id)
        if self._save_artifact:
            self._client.log_artifacts(run, trial.local_path)
        self._client.set_terminated(run, status="FAILED" if failed else "FINISHED")

    def _find_run(self, trial: Trial) -> str | None:
        found = self._client.search_runs(
            [self._experiment_id], f"tags.`{TRIAL_TAG}` = '{trial.trial_id}'", max_results=1
        )
        return str(found[0].info.run_id) if found else None

    def _create_run(self, trial: Trial) -> str:
        tags = {**self._tags, "trial_name": str(trial), TRIAL_TAG: trial.trial_id}
        return str(self._client.create_run(self._experiment_id, run_name=str(trial), tags=tags).info.run_id)

    def _log_params(self, trial: Trial) -> None:
        for name, value in flat_items(trial.config):
            self._client.log_param(self._runs[trial.trial_id], name, value)


def numbers(result: Mapping[str, Any]) -> dict[str, float]:
    wanted = {key: value for key, value in result.items() if key != "config"}
    found = {name: number(value) for name, value in flat_items(wanted)}
    return {name: value for name, value in found.items() if value is not None}
