"""Training metrics in TensorBoard, MLflow and Weights & Biases: ``RunConfig(callbacks=[TensorBoardCallback()])``.

They run in the driver, and log what rank 0 reports. The step is the metric that ``step`` names, else the first of
"step", "global_step", "iteration" and "epoch" that is reported, else a count of the reports since the driver began.
MLflow and W&B are reached by the loggers in ``trackers/``, from a thread: a tracker that is slow, or does not
answer, holds nothing up, and what cannot be logged is a warning.
"""

from __future__ import annotations

import atexit
import importlib.util
import logging
import math
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.core.metric_names import TRAINING_ITERATION, flat_items, number
from holdfast.trackers.event_file import EventFile
from holdfast.trackers.logger_callback import LoggerCallback
from holdfast.trackers.mlflow_logger import MLflowLoggerCallback
from holdfast.trackers.sender import Sender
from holdfast.trackers.wandb_logger import WandbLoggerCallback
from holdfast.train.user_callback import TrainRunContext, UserCallback

if TYPE_CHECKING:
    from holdfast.train.checkpoint import Checkpoint

log = logging.getLogger(__name__)
_STEPS = ("step", "global_step", "iteration", "epoch")


class _Steps:
    def __init__(self, name: str | None) -> None:
        self._name, self._count = name, 0

    def of(self, metrics: Mapping[str, Any]) -> int:
        self._count += 1
        for name in (self._name,) if self._name else _STEPS:
            value = number(metrics.get(name))
            if value is not None and math.isfinite(value):
                return int(value)
        return self._count


class TensorBoardCallback(UserCallback):
    """Writes event files to ``directory``, by default to ``tensorboard/`` in the run's directory."""

    def __init__(self, directory: str | None = None, step: str | None = None) -> None:
        self._directory, self._steps = directory, _Steps(step)
        self._file: EventFile | None = None
        self._is_given_up = False

    def after_report(
        self, run_context: TrainRunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        if self._is_given_up:
            return
        where = self._where(run_context)
        numbers = {name: number(value) for name, value in flat_items(metrics[0])}
        curves = {name: value for name, value in numbers.items() if value is not None and not math.isnan(value)}
        try:
            if self._file is None:
                self._file = EventFile(where, time.time())
                atexit.register(self.close)
            self._file.add_scalars(curves, self._steps.of(metrics[0]), time.time())
            self._file.flush()  # a person looks at the curves while it trains
        except OSError as error:
            self._is_given_up = True
            log.warning("TensorBoardCallback: the curves in %s end here: %s", where, error)

    def close(self) -> None:
        """Close the event file. It may be called before the process exits, and only once."""
        file, self._file = self._file, None
        if file is not None:
            atexit.unregister(self.close)
            file.close()

    def _where(self, run_context: TrainRunContext) -> str:
        location = run_context.run_config.location
        directory = self._directory or (location / "tensorboard").directory_here()
        if not directory:
            raise ValueError(
                f"TensorBoardCallback(directory=...): name a local directory, as the run is stored in {location}"
            )
        return directory


class _RunAsTrial:
    """A run as the loggers of tuning know trials."""

    def __init__(self, run_context: TrainRunContext) -> None:
        location = run_context.run_config.location
        self.trial_id = run_context.run_config.name
        self.config = run_context.train_loop_config or {}
        self.evaluated_params: Mapping[str, Any] = self.config
        self.status, self.error = "RUNNING", None
        self.last_result: dict[str, Any] = {}
        self.local_path = str(location)
        self.checkpoint: Checkpoint | None = None

    def __str__(self) -> str:
        return self.trial_id


class _LoggedByTune(UserCallback):
    """Ends the logging when the process exits, or another run begins: a driver that continues later resumes it."""

    def __init__(self, logger: LoggerCallback, module: str, step: str | None) -> None:
        _check_installed(type(self).__name__, module)
        self._logger, self._step = logger, step
        self._run = ""
        self._sender: Sender | None = None
        self._failed = False

    def after_report(
        self, run_context: TrainRunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        if self._sender is None or self._run != run_context.run_id:
            self._begin(run_context)
        assert self._sender is not None
        self._failed = False
        step = self._steps.of(metrics[0])
        self._sender.put(partial(self._log, step, metrics[0], checkpoint))

    def after_exception(self, run_context: TrainRunContext, worker_exceptions: dict[int, Exception]) -> None:
        self._failed = True

    def close(self) -> None:
        """Once; may be called before the process exits. Waits for pending data, but not forever."""
        sender, self._sender = self._sender, None
        if sender is not None:
            atexit.unregister(self.close)
            sender.put(partial(self._end, self._failed))
            sender.close()

    def _begin(self, run_context: TrainRunContext) -> None:
        self.close()
        self._run, self._steps = run_context.run_id, _Steps(self._step)
        self._trial, self._is_begun = _RunAsTrial(run_context), False
        self._sender = Sender(type(self).__name__)
        atexit.register(self.close)

    def _log(self, step: int, metrics: dict[str, Any], checkpoint: Checkpoint | None) -> None:
        """In the sender's thread, as all that talks to the tracker."""
        if not self._is_begun:
            self._logger.setup()
            self._logger.log_trial_start(self._trial)
            self._is_begun = True
        self._logger.log_trial_result(step, self._trial, {**metrics, TRAINING_ITERATION: step})
        if checkpoint is not None:
            self._trial.checkpoint = checkpoint
            self._logger.log_trial_save(self._trial)

    def _end(self, failed: bool) -> None:
        if self._is_begun:
            self._logger.log_trial_end(self._trial, failed=failed)


def _check_installed(callback: str, module: str) -> None:
    """When the script makes the callback, not hours later."""
    known = sys.modules.get(module) is not None
    if not known and (module in sys.modules or importlib.util.find_spec(module) is None):
        raise ImportError(f"{callback} needs {module}: pip install {module}")


class MLflowCallback(_LoggedByTune):
    """Logs to an MLflow run that has the run's name. Other keywords are those of ``holdfast.tune.logger.mlflow``."""

    def __init__(self, tracking_uri: str | None = None, *, step: str | None = None, **options: Any) -> None:
        super().__init__(MLflowLoggerCallback(tracking_uri, **options), "mlflow", step)


class WandbCallback(_LoggedByTune):
    """Logs to a W&B run that has the run's name. Other keywords are those of ``holdfast.tune.logger.wandb``."""

    def __init__(self, project: str | None = None, *, step: str | None = None, **options: Any) -> None:
        super().__init__(WandbLoggerCallback(project, **options), "wandb", step)
