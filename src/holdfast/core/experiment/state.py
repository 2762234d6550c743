"""The state of one experiment. ``step`` owns it and changes it in place: there may be 100,000 trials.

What survives the driver is rebuilt from the journal; what does not is apart, in ``DriverMemory``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from holdfast.core.experiment.trial import Trial


class ExperimentLimits(Struct, frozen=True):
    """``num_trials``: where the experiment counts them, and not the searcher; negative for no limit."""

    num_trials: int = -1
    max_concurrent: int = 0  # 0: as many as there is capacity for
    fail_fast: bool = False


class DriverMemory(Struct):
    """What only this driver knows: the next one starts without it."""

    active: dict[str, None] = field(default_factory=dict)  # trials that have capacity: they run, or are about to
    interrupted: str = ""  # why all that runs is stopped and left unfinished
    failed_fast: str | None = None  # the trial whose failure ended it
    exhausted: bool = False  # the searcher has no further suggestion
    idled: bool = False  # the scheduler was told that nothing runs, and nothing has run since
    misfits: int = 0  # trials in a row that could never be placed


class ExperimentState:
    """Also the experiment as schedulers see it. Trials come in the order in which they were added."""

    def __init__(
        self, limits: ExperimentLimits | None = None, total_resources: Mapping[str, float] | None = None
    ) -> None:
        self.limits = limits or ExperimentLimits()
        self.total_resources: Mapping[str, float] = total_resources or {}
        self.trials: dict[str, Trial] = {}
        self.live: dict[str, Trial] = {}  # those that have not ended
        self.awaiting: dict[str, Trial] = {}  # live trials for which it is decided what happens once they have stopped
        self.callback_states: dict[tuple[int, str], dict[str, Any]] = {}
        self.stopping = ""  # why no further trial is started
        self.epoch = 0
        self.host: Mapping[str, Any] = {}  # what results say of the machine
        self.answers_recorded = False  # of the driver whose events are being processed
        self.spent_s = 0.0  # by drivers before this one
        self.changed: float | None = None  # when the last record of its journal was written, while that is read
        self.is_over = False
        self.driver = DriverMemory()

    def get_trials(self) -> Sequence[Trial]:
        return list(self.trials.values())

    def get_live_trials(self) -> Sequence[Trial]:
        return list(self.live.values())

    def get_trial(self, trial_id: str) -> Trial | None:
        return self.trials.get(trial_id)

    @property
    def count(self) -> int:
        return len(self.trials)

    def count_of(self, status: str) -> int:
        return sum(trial.status == status for trial in self.live.values())
