"""Trials as runs in Aim, in a repository on disk or on a server."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Sequence
from typing import Any

from holdfast.core.metric_names import TRAINING_ITERATION, flat_items, number
from holdfast.trackers.logger_callback import LoggerCallback
from holdfast.trackers.trial_callback import Trial

NEVER = {"config", "pid", "time_total_s", "timestamp", TRAINING_ITERATION}


class AimLoggerCallback(LoggerCallback):
    """Logs each trial to an Aim run. ``repo`` is a directory, an address or an ``aim.Repo``. The default is the
    experiment's directory.

    The default ``experiment_name`` is the name of that directory. ``metrics`` names the reported metrics to track, by
    flat names; None means all. Other keywords go to ``aim.Run``.
    """

    def __init__(
        self,
        repo: Any = None,
        experiment_name: str | None = None,
        metrics: Sequence[str] | None = None,
        **aim_run_kwargs: Any,
    ) -> None:
        if metrics is not None and not metrics:
            raise ValueError("AimLoggerCallback(metrics=[]): nothing would be tracked; pass None for all metrics")
        self._repo, self._experiment_name = repo, experiment_name
        self._metrics = None if metrics is None else set(metrics)
        self._options = aim_run_kwargs
        self._aim: Any = None
        self._runs: dict[str, Any] = {}

    def setup(self, *args: Any, **info: Any) -> None:
        try:
            self._aim = importlib.import_module("aim.sdk")
        except ImportError as error:
            raise ImportError("AimLoggerCallback needs Aim: run pip install aim") from error

    def log_trial_start(self, trial: Trial) -> None:
        if trial.trial_id in self._runs:
            return
        above = os.path.dirname(trial.local_path)
        run = self._aim.Run(
            repo=self._repo or above, experiment=self._experiment_name or os.path.basename(above), **self._options
        )
        run["trial_id"], run["trial_log_dir"] = trial.trial_id, trial.local_path
        params = dict(flat_items(trial.evaluated_params))
        run["hparams"] = {name: plain for name, value in params.items() if (plain := _hparam(value)) is not _NONE}
        self._runs[trial.trial_id] = run

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        self.log_trial_start(trial)
        kept = {name: value for name, value in result.items() if name not in NEVER}
        about = {name: kept.pop(name, None) for name in ("context", "epoch")}  # names to which Aim gives a meaning
        step = result.get("timesteps_total") or result.get(TRAINING_ITERATION)
        for name, value in flat_items(kept):
            found = None if isinstance(value, bool) else number(value)
            if found is not None and math.isfinite(found) and (self._metrics is None or name in self._metrics):
                self._runs[trial.trial_id].track(found, name=f"ray/tune/{name}", step=step, **about)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        run = self._runs.pop(trial.trial_id, None)
        if run is not None:
            run.close()

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        while self._runs:
            self._runs.popitem()[1].close()


_NONE = object()


def _hparam(value: Any) -> Any:
    """The value as Aim can hold it; ``_NONE`` if Aim cannot hold it."""
    if value is None or isinstance(value, (str, bool, int, float, list)):
        return value
    found = number(value)
    return _NONE if found is None else found
