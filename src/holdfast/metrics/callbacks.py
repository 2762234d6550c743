"""Training metrics in TensorBoard, MLflow and Weights & Biases: ``RunConfig(callbacks=[TensorBoardCallback()])``.

They run in the driver, and log what rank 0 reports. The step is the metric that ``step`` names, else the first of
"step", "global_step", "iteration" and "epoch" that is reported, else a count of the reports since the driver began.
MLflow and W&B are reached by the loggers of ``holdfast.tune``; they are needed only when the first report comes.
"""

from __future__ import annotations

import atexit
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.train.callback import TrainRunContext, UserCallback
from holdfast.tune.logger.event_file import EventFile
from holdfast.tune.logger.logger import LoggerCallback
from holdfast.tune.logger.mlflow import MLflowLoggerCallback
from holdfast.tune.logger.wandb import WandbLoggerCallback
from holdfast.tune.metrics import TRAINING_ITERATION, flat_items, number

if TYPE_CHECKING:
    from holdfast.train.checkpoint import Checkpoint

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
    """Event files in ``directory``, else in the run's own directory below ``tensorboard/``."""

    def __init__(self, directory: str | None = None, step: str | None = None) -> None:
        self._directory, self._steps = directory, _Steps(step)
        self._file: EventFile | None = None

    def after_report(
        self, run_context: TrainRunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        if self._file is None:
            self._file = EventFile(self._where(run_context), time.time())
            atexit.register(self.close)
        numbers = {name: number(value) for name, value in flat_items(metrics[0])}
        curves = {name: value for name, value in numbers.items() if value is not None and not math.isnan(value)}
        self._file.add_scalars(curves, self._steps.of(metrics[0]), time.time())

    def close(self) -> None:
        """Once; may be called before the process ends."""
        file, self._file = self._file, None
        if file is not None:
            atexit.unregister(self.close)
            file.close()

    def _where(self, run_context: TrainRunContext) -> str:
        location = run_context.run_config.location
        if self._directory is None and location.is_remote:
            raise ValueError(
                f"TensorBoardCallback(directory=...): name a local directory, as the run is stored in {location}"
            )
        return self._directory or str(location / "tensorboard")


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
    """Ends what is logged when the process does: a driver that goes on later goes on with it."""

    def __init__(self, logger: LoggerCallback, step: str | None) -> None:
        self._logger, self._steps = logger, _Steps(step)
        self._trial: _RunAsTrial | None = None
        self._failed = False

    def after_report(
        self, run_context: TrainRunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        if self._trial is None:
            self._logger.setup()
            self._trial = _RunAsTrial(run_context)
            self._logger.log_trial_start(self._trial)
            atexit.register(self.close)
        self._failed = False
        step = self._steps.of(metrics[0])
        self._logger.log_trial_result(step, self._trial, {**metrics[0], TRAINING_ITERATION: step})
        if checkpoint is not None:
            self._trial.checkpoint = checkpoint
            self._logger.log_trial_save(self._trial)

    def after_exception(self, run_context: TrainRunContext, worker_exceptions: dict[int, Exception]) -> None:
        self._failed = True

    def close(self) -> None:
        """Once; may be called before the process ends."""
        trial, self._trial = self._trial, None
        if trial is not None:
            atexit.unregister(self.close)
            self._logger.log_trial_end(trial, failed=self._failed)


class MLflowCallback(_LoggedByTune):
    """An MLflow run of the run's name. More keywords are those of ``holdfast.tune.logger.mlflow``."""

    def __init__(self, tracking_uri: str | None = None, *, step: str | None = None, **options: Any) -> None:
        super().__init__(MLflowLoggerCallback(tracking_uri, **options), step)


class WandbCallback(_LoggedByTune):
    """A W&B run of the run's name. More keywords are those of ``holdfast.tune.logger.wandb``."""

    def __init__(self, project: str | None = None, *, step: str | None = None, **options: Any) -> None:
        super().__init__(WandbLoggerCallback(project, **options), step)
