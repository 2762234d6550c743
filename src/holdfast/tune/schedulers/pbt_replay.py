"""Trains one trial with the schedule of configurations that population-based training found.

The schedule is read once, when the scheduler is created, from a file ``pbt_policy_<trial>.txt``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.core.metric_names import lookup, number
from holdfast.tune.result_metrics import TRAINING_ITERATION

from .decision import Decision, Exploit, Save, SetConfig
from .trial_scheduler import ExperimentView, FIFOScheduler, Requests, TrialView


class PopulationBasedTrainingReplay(FIFOScheduler):
    accepts_searcher = False

    def __init__(self, policy_file: str | Path) -> None:
        path = Path(policy_file).expanduser()
        try:
            text = path.read_text()
        except OSError as error:
            raise ValueError(f"PopulationBasedTrainingReplay(policy_file={str(policy_file)!r}): {error}") from error
        self.policy_file = str(path)
        self.config, self._policy = read_policy(text, str(path))
        self._trial_id: str | None = None
        self._done = 0

    def on_trial_add(self, experiment: ExperimentView, trial: TrialView) -> Requests:
        if self._trial_id not in (None, trial.trial_id):
            raise ValueError("PopulationBasedTrainingReplay trains one trial: set num_samples=1 and no grid_search")
        is_new = self._trial_id is None
        self._trial_id = trial.trial_id
        return (SetConfig(trial.trial_id, self.config),) if is_new and self.config is not None else ()

    def on_trial_result(self, experiment: ExperimentView, trial: TrialView, result: Mapping[str, Any]) -> Decision:
        step = number(lookup(result, TRAINING_ITERATION))
        due = [config for at, config in self._policy[self._done :] if step is not None and step >= at]
        if not due:
            return self.CONTINUE
        self._done += len(due)
        change = Exploit(
            trial_id=trial.trial_id,
            donor_id=trial.trial_id,
            checkpoint=None,
            config=due[-1],
            donor_config=dict(trial.config),
            step=int(step or 0),
            donor_step=int(step or 0),
        )
        return Decision("CONTINUE", f"change {self._done} of the schedule", (Save(trial.trial_id), change))

    def debug_string(self) -> str:
        return f"PopulationBasedTrainingReplay: {self._done} of {len(self._policy)} changes made"


Schedule = list[tuple[int, dict[str, Any]]]


def read_policy(text: str, name: str) -> tuple[dict[str, Any] | None, Schedule]:
    """The first configuration, and at which step each of the later ones begins.

    Lines are read from the last one back, as long as each is about the trial that the next one took over from; what
    is before was overwritten.
    """
    initial: dict[str, Any] | None = None
    schedule: Schedule = []
    expected = None
    for line in reversed(text.splitlines()):
        try:
            trial, donor, _, donor_step, donor_config, config = json.loads(line)
            change = int(donor_step), dict(config)
            before = dict(donor_config)
        except (TypeError, ValueError):
            raise ValueError(f"{name} is not a policy of population-based training: {line[:200]!r}") from None
        if expected not in (None, trial):
            break
        expected, initial = donor, before
        schedule.insert(0, change)
    return initial, schedule
