"""An experiment that a driver works on: the state of the core, the policy, and the storage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.experiment import commands as do
from holdfast.core.experiment import events as ev
from holdfast.core.experiment.state import ExperimentLimits, ExperimentState
from holdfast.core.experiment.step import step
from holdfast.core.experiment.trial import Trial
from holdfast.store.location import Location
from holdfast.tune.schedulers.trial_scheduler import TrialScheduler
from holdfast.tune.stopper import Stopper

from .trial_tally import BestResult
from .user_policy import UserPolicy


@dataclass(frozen=True)
class ExperimentSpec:
    metric: str | None = None
    mode: str | None = None
    num_samples: int = 1
    max_concurrent: int = 0
    fail_fast: bool = False
    host: Mapping[str, Any] = field(default_factory=dict)  # the fields about the machine in every result
    total_resources: Mapping[str, float] = field(default_factory=dict)


class LiveExperiment:
    def __init__(self, spec: ExperimentSpec, home: Location, policy: UserPolicy) -> None:
        self.spec, self.home, self.policy = spec, home, policy
        counted = -1 if policy.gives_whole_configs else spec.num_samples
        limits = ExperimentLimits(counted, spec.max_concurrent, spec.fail_fast)
        self.state = ExperimentState(limits, spec.total_resources)
        self.failures: dict[str, Exception] = {}  # of trials that failed under this driver
        self.best = BestResult(spec.metric, spec.mode)

    def apply(self, event: ev.Event, now: float) -> list[do.Command]:
        self.state, commands, _reason = step(self.state, event, now, self.policy)
        return commands

    @property
    def scheduler(self) -> TrialScheduler:
        return self.policy.scheduler

    @property
    def stopper(self) -> Stopper:
        return self.policy.stopper

    @property
    def callback_states(self) -> dict[tuple[int, str], dict[str, Any]]:
        return self.state.callback_states

    @property
    def spent_s(self) -> float:
        return self.state.spent_s

    @property
    def count(self) -> int:
        return self.state.count

    def trial(self, trial_id: str) -> Trial:
        return self.state.trials[trial_id]

    def get_trials(self) -> Sequence[Trial]:
        return self.state.get_trials()

    def get_live_trials(self) -> Iterable[Trial]:
        return self.state.live.values()

    def home_of(self, trial: Trial) -> Location:
        return self.home / trial.directory
