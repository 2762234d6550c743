"""TensorBoard: event files in the trial's directory, with curves of its numbers and the table of parameters."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.core.metric_names import TRAINING_ITERATION, flat_items, number
from holdfast.trackers.event_file import EventFile, Parameter
from holdfast.trackers.trial_callback import Trial
from holdfast.trackers.trial_files import FilesOfTrials

PREFIX = "holdfast/tune/"
NOT_CURVES = {"config", "pid", "timestamp", "time_total_s", TRAINING_ITERATION}
NO_NUMBERS = {str, bool, type(None)}


class TBXLoggerCallback(FilesOfTrials[EventFile]):
    """Writes TensorBoard files: the searched parameters when a trial starts, and the numbers of each result.

    It requires no package. You need TensorBoard only to look at the files.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._clock = clock

    def log_trial_start(self, trial: Trial) -> None:
        if trial.trial_id in self._files:
            return
        now = self._clock()
        file = self._files[trial.trial_id] = EventFile(trial.local_path, now)
        if trial.evaluated_params:
            file.add_parameters(parameters(trial.evaluated_params), now)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        self.log_trial_start(trial)
        step = number(result.get("timesteps_total")) or number(result.get(TRAINING_ITERATION)) or 0.0
        at = number(result.get("timestamp")) or self._clock()
        file = self._files[trial.trial_id]
        file.add_scalars(curves(result), int(step), at)
        self._unflushed.add(file)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        file = self._files.pop(trial.trial_id, None)
        if file is not None:
            file.add_end(failed, self._clock())
            self._done_with(file)


def curves(result: Mapping[str, Any]) -> dict[str, float]:
    """The values of a result that are drawn: numbers other than NaN."""
    wanted = {key: value for key, value in result.items() if key not in NOT_CURVES and type(value) not in NO_NUMBERS}
    found = ((PREFIX + name, number(value)) for name, value in flat_items(wanted))
    return {name: value for name, value in found if value is not None and value == value}


def parameters(params: Mapping[str, Any]) -> dict[str, Parameter]:
    """Parameters as TensorBoard takes them: numbers, strings and bools as they are, anything else as text."""
    plain: dict[str, Parameter] = {}
    for name, value in flat_items(params):
        as_number = number(value)
        plain[name] = value if isinstance(value, (str, bool)) else str(value) if as_number is None else as_number
    return plain
