"""Trials and an experiment as the display sees them, without anything that runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from holdfast.core.experiment.trial import Trial
from holdfast.store.location import Location
from holdfast.tune.experiment.trial_tally import BestResult
from holdfast.tune.schedulers.trial_scheduler import ERROR


def trial(number: int, status: str = "RUNNING", error: str = "", lr: float = 0.1, **result: Any) -> Trial:
    config = {"lr": lr, "constant": "c"}
    made = Trial(f"t{number}", config, {"lr": lr}, f"train_{number:05d}", f"train_{number:05d}", [{"CPU": 1.0}])
    made.status, made.error = status, error or None
    made.last_result = {"training_iteration": 1, **result, "config": config} if result else {}
    if made.has_ended:
        made.pack()
    return made


class ToyExperiment:
    def __init__(self, trials: Sequence[Trial] = (), metric: str | None = "loss", mode: str | None = "min") -> None:
        self.trials = list(trials)
        self.spec = SimpleNamespace(metric=metric, mode=mode)
        self.best = BestResult(metric, mode)
        for trial in self.trials:
            self.best.note(trial, trial.last_result)
        self.home = Location.parse("toy", Path("/experiments/toy"))
        self.stopper = self.scheduler = None
        self.spent_s = 0.0
        self.callback_states: dict[tuple[int, str], dict[str, Any]] = {}
        self.looks_at_all = 0

    @property
    def count(self) -> int:
        return len(self.trials)

    def get_trials(self) -> list[Trial]:
        self.looks_at_all += 1
        return list(self.trials)

    def get_live_trials(self) -> list[Trial]:
        return [trial for trial in self.trials if not trial.has_ended]

    def home_of(self, trial: Trial) -> Location:
        return self.home / trial.directory

    def end(self, trial: Trial, error: str = "") -> Trial:
        trial.status, trial.error = (ERROR, error) if error else ("TERMINATED", None)
        trial.pack()
        return trial
