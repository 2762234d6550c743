"""Trials as runs in Weights & Biases. Only the driver talks to the service, never a trial."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.core.metric_names import TRAINING_ITERATION, flat_items, number
from holdfast.trackers.logger_callback import LoggerCallback
from holdfast.trackers.trial_callback import Trial

TO_CONFIG = {"date", "experiment_tag", "hostname", "node_ip", "pid", "trial_id"}
NEVER = {"done", "should_checkpoint"}


class WandbLoggerCallback(LoggerCallback):
    """Logs each trial to a W&B run with the trial's id, so that a restored experiment resumes it.

    ``excludes`` are keys of results and config to leave out. ``log_config`` logs the config with every result, for
    schedulers that change it. ``upload_checkpoints`` (previously ``save_checkpoints``) uploads each checkpoint as an
    artifact. Other keywords go to ``wandb.init``.
    """

    def __init__(
        self,
        project: str | None = None,
        group: str | None = None,
        api_key_file: str | None = None,
        api_key: str | None = None,
        excludes: Iterable[str] | None = None,
        log_config: bool = False,
        upload_checkpoints: bool = False,
        save_checkpoints: bool = False,
        upload_timeout: float | None = None,
        video_kwargs: dict[str, Any] | None = None,
        image_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        for name, given in {
            "upload_timeout": upload_timeout,
            "video_kwargs": video_kwargs,
            "image_kwargs": image_kwargs,
        }.items():
            if given is not None:
                warnings.warn(f"WandbLoggerCallback({name}=): has no effect; leave it out", stacklevel=2)
        if api_key and api_key_file:
            raise ValueError("WandbLoggerCallback: pass either api_key or api_key_file, not both")
        self._project, self._group = project, group
        self._api_key, self._api_key_file = api_key, api_key_file
        self._excludes = {*(excludes or ()), *NEVER} | (set() if log_config else {"config"})
        self._upload_checkpoints = upload_checkpoints or save_checkpoints
        self._init_options = kwargs
        self._wandb: Any = None
        self._runs: dict[str, Any] = {}

    def setup(self, *args: Any, **info: Any) -> None:
        try:
            self._wandb = importlib.import_module("wandb")
        except ImportError as error:
            raise ImportError("WandbLoggerCallback needs wandb: run pip install 'wandb>=0.19.10'") from error
        key = self._api_key
        if self._api_key_file:
            with open(os.path.expanduser(self._api_key_file)) as file:
                key = file.read().strip()
        if key:
            self._wandb.login(key=key)

    def log_trial_start(self, trial: Trial) -> None:
        if trial.trial_id in self._runs:
            return
        options = {
            "id": trial.trial_id,
            "name": str(trial),
            "project": self._project,
            "group": self._group,
            "config": {key: value for key, value in trial.config.items() if key not in self._excludes},
            "resume": "allow",
            "reinit": "create_new",  # allows many trials at the same time in one process
            "allow_val_change": True,
            **self._init_options,
        }
        self._runs[trial.trial_id] = self._wandb.init(**options)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        self.log_trial_start(trial)
        run = self._runs[trial.trial_id]
        wanted = {key: value for key, value in result.items() if key not in self._excludes}
        about = {key: wanted.pop(key) for key in TO_CONFIG & wanted.keys()}
        run.log(plain_values(wanted), step=result.get(TRAINING_ITERATION))
        run.config.update(about, allow_val_change=True)

    def log_trial_save(self, trial: Trial) -> None:
        if self._upload_checkpoints and trial.checkpoint is not None and trial.trial_id in self._runs:
            artifact = self._wandb.Artifact(name=f"checkpoint_{trial.trial_id}", type="model")
            artifact.add_dir(str(trial.checkpoint.path))
            self._runs[trial.trial_id].log_artifact(artifact)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        run = self._runs.pop(trial.trial_id, None)
        if run is not None:
            run.finish(exit_code=int(failed))

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        while self._runs:
            self._runs.popitem()[1].finish()


def plain_values(result: Mapping[str, Any]) -> dict[str, Any]:
    """By flat names: numbers as they are, all other values as text."""
    flat = ((name, value, number(value)) for name, value in flat_items(result))
    return {name: str(value) if as_number is None else as_number for name, value, as_number in flat}
