"""TensorBoard's event files in the trial's directory, written by tensorboardX or by torch's writer, whichever is there.

Neither is imported before the first trial starts: torch's costs seconds.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Mapping
from typing import Any

from holdfast.tune.callback import Trial
from holdfast.tune.logger.logger import LoggerCallback
from holdfast.tune.metrics import TRAINING_ITERATION, flat_items, number

PREFIX = "holdfast/tune/"
WRITERS = {"tensorboardX": ("tensorboardX",), "torch.utils.tensorboard": ("torch", "tensorboard")}
NOT_CURVES = {"config", "pid", "timestamp", "time_total_s", TRAINING_ITERATION}


class TBXLoggerCallback(LoggerCallback):
    """Writes the numbers of each result, and the searched parameters with the last numbers when the trial ends."""

    def __init__(self) -> None:
        module = available_writer()
        if module is None:
            raise ImportError("TBXLoggerCallback needs a writer of event files: run pip install tensorboardX")
        self._module = module
        self._writers: dict[str, Any] = {}
        self._last: dict[str, dict[str, float]] = {}

    def log_trial_start(self, trial: Trial) -> None:
        self._close(trial)
        writer = importlib.import_module(self._module).SummaryWriter
        self._writers[trial.trial_id] = writer(trial.local_path, flush_secs=30)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        if trial.trial_id not in self._writers:
            self.log_trial_start(trial)
        writer = self._writers[trial.trial_id]
        step = result.get("timesteps_total") or result.get(TRAINING_ITERATION)
        numbers = self._last[trial.trial_id] = curves(result)
        for name, value in numbers.items():
            writer.add_scalar(name, value, global_step=step)
        writer.flush()

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        last = self._last.pop(trial.trial_id, None)
        writer = self._writers.get(trial.trial_id)
        if writer is not None and last and trial.evaluated_params:
            summaries = importlib.import_module(f"{self._module}.summary")
            for summary in summaries.hparams(hparam_dict=hparams(trial.evaluated_params), metric_dict=last):
                writer.file_writer.add_summary(summary)
        self._close(trial)

    def _close(self, trial: Trial) -> None:
        writer = self._writers.pop(trial.trial_id, None)
        if writer is not None:
            writer.close()


def available_writer() -> str | None:
    """The module to take the writer from, found without importing it."""
    for module, needed in WRITERS.items():
        if all(importlib.util.find_spec(name) is not None for name in needed):
            return module
    return None


def curves(result: Mapping[str, Any]) -> dict[str, float]:
    """What of a result is drawn: numbers other than NaN."""
    wanted = {key: value for key, value in result.items() if key not in NOT_CURVES}
    found = {PREFIX + name: number(value) for name, value in flat_items(wanted)}
    return {name: value for name, value in found.items() if value is not None and not math.isnan(value)}


def hparams(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as TensorBoard takes them: numbers, strings and bools as they are, anything else as text."""
    plain: dict[str, Any] = {}
    for name, value in flat_items(params):
        as_number = number(value)
        plain[name] = value if isinstance(value, (str, bool)) else str(value) if as_number is None else as_number
    return plain
