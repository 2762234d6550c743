"""Trials as experiments in Comet. Only the driver talks to the service, never a trial."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from holdfast.core.metric_names import TRAINING_ITERATION, flat_items
from holdfast.trackers.logger_callback import LoggerCallback
from holdfast.trackers.trial_callback import Trial

NEVER = {"config", "done", "should_checkpoint"}
TO_OTHER = {"experiment_tag", "trial_id"}
TO_SYSTEM = {"date", "hostname", "node_ip", "pid"}
NOT_BY_ITSELF = ("auto_output_logging", "log_git_metadata", "log_git_patch", "log_env_cpu", "log_env_gpu")


class CometLoggerCallback(LoggerCallback):
    """Logs each trial to a Comet experiment. With ``online=False`` it writes an archive to disk, to upload later.

    ``save_checkpoints`` uploads each checkpoint as an artifact, online only. Other keywords go to
    ``comet_ml.Experiment`` or ``comet_ml.OfflineExperiment``. Comet's automatic logging, such as of git, is off unless
    one of them turns it on.
    """

    def __init__(
        self,
        online: bool = True,
        tags: Sequence[str] | None = None,
        save_checkpoints: bool = False,
        **experiment_kwargs: Any,
    ) -> None:
        if save_checkpoints and not online:
            raise ValueError(
                "CometLoggerCallback(online=False, save_checkpoints=True): Comet takes artifacts online only. "
                "Leave out save_checkpoints."
            )
        self._online, self._tags, self._save_checkpoints = online, list(tags or ()), save_checkpoints
        self._options = {**dict.fromkeys(NOT_BY_ITSELF, False), **experiment_kwargs}
        self._comet: Any = None
        self._experiments: dict[str, Any] = {}

    def setup(self, *args: Any, **info: Any) -> None:
        try:
            self._comet = importlib.import_module("comet_ml")
        except ImportError as error:
            raise ImportError("CometLoggerCallback needs Comet: run pip install comet-ml") from error

    def log_trial_start(self, trial: Trial) -> None:
        if trial.trial_id in self._experiments:
            return
        kind = self._comet.Experiment if self._online else self._comet.OfflineExperiment
        experiment = self._experiments[trial.trial_id] = kind(**self._options)
        importlib.import_module("comet_ml.config").set_global_experiment(None)  # or there could be only one
        experiment.set_name(str(trial))
        experiment.add_tags(self._tags)
        experiment.log_other("Created from", "Holdfast")
        experiment.log_parameters(dict(flat_items(trial.config)))

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        self.log_trial_start(trial)
        experiment = self._experiments[trial.trial_id]
        step = result.get(TRAINING_ITERATION)
        if result.get("config"):
            experiment.log_parameters(dict(flat_items(result["config"])), step=step)
        kept = {name: value for name, value in result.items() if name not in NEVER}
        experiment.log_others({name: kept.pop(name) for name in TO_OTHER & kept.keys()})
        for name in TO_SYSTEM & kept.keys():
            experiment.log_system_info(name, kept.pop(name))
        metrics = {name: value for name, value in flat_items(kept) if value is not None}
        experiment.log_metrics(metrics, step=step)

    def log_trial_save(self, trial: Trial) -> None:
        if self._save_checkpoints and trial.checkpoint is not None and trial.trial_id in self._experiments:
            artifact = self._comet.Artifact(name=f"checkpoint_{trial}", artifact_type="model")
            with trial.checkpoint.as_directory() as directory:
                artifact.add(directory)
                self._experiments[trial.trial_id].log_artifact(artifact)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        experiment = self._experiments.pop(trial.trial_id, None)
        if experiment is not None:
            experiment.end()

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        while self._experiments:
            self._experiments.popitem()[1].end()
