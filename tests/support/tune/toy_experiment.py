"""A small experiment that carries out what schedulers decide, and records every call so that it can be made again."""

from __future__ import annotations

import array
import copy
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any

from holdfast.tune.schedulers import Decision, Exploit, Resize, Save, SetConfig, StopTrial, TrialScheduler
from holdfast.tune.schedulers.trial_scheduler import ERROR, PAUSED, PENDING, RUNNING, TERMINATED

Objective = Callable[[Mapping[str, Any], int], Mapping[str, Any]]


@dataclass
class Trial:
    trial_id: str
    config: dict[str, Any] = field(default_factory=dict)
    status: str = PENDING
    last_result: dict[str, Any] = field(default_factory=dict)
    checkpoint: int | None = None
    resources: Sequence[Mapping[str, float]] = ({"CPU": 1.0},)


@dataclass
class View:
    """An experiment as schedulers see it."""

    trials: dict[str, Trial]
    total_resources: Mapping[str, float] = field(default_factory=lambda: {"CPU": 4.0})

    def get_trials(self) -> list[Trial]:
        return list(self.trials.values())

    def get_live_trials(self) -> list[Trial]:
        return [trial for trial in self.trials.values() if trial.status not in (TERMINATED, ERROR)]

    def get_trial(self, trial_id: str) -> Trial | None:
        return self.trials.get(trial_id)


def view_of(*trials: Trial, **total: float) -> View:
    return View({trial.trial_id: trial for trial in trials}, total or {"CPU": 4.0})


@dataclass
class Call:
    method: str
    view: View
    trial_id: str | None
    result: Mapping[str, Any] | None

    def make(self, scheduler: TrialScheduler) -> Any:
        """What the scheduler answers, in a form that can be compared."""
        arguments: list[Any] = [self.view]
        if self.trial_id is not None:
            arguments.append(self.view.trials[self.trial_id])
        if self.result is not None:
            arguments.append(self.result)
        return comparable(getattr(scheduler, self.method)(*arguments))


class Toy:
    """Runs the trials of the configurations on a number of slots. All is in a seeded order, and every report makes a
    checkpoint whose number is the step."""

    def __init__(
        self,
        scheduler: TrialScheduler,
        configs: Sequence[Mapping[str, Any]],
        objective: Objective,
        *,
        slots: int = 2,
        last_step: int = 10,
        seed: int = 0,
        fails: Mapping[str, int] | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.view = View({})
        self.calls: list[Call] = []
        self.answers: list[Any] = []
        self.exploits: list[Exploit] = []
        self.ended: dict[str, int] = {}
        self.errors: dict[str, str] = {}
        self._configs = deque(configs)
        self._objective = objective
        self._slots = slots
        self._last_step = last_step
        self._order = random.Random(seed)
        self._fails = fails or {}

    def run(self, most: int = 100_000) -> Toy:
        while self.scheduler.needs_population and self._configs:
            self._add()
        for _ in range(most):
            while len(self.running()) < self._slots and self._start_or_add():
                pass
            running = self.running()
            if running:
                self._step(running[self._order.randrange(len(running))])
            elif not self._idle():
                break
        else:
            raise AssertionError(f"no end after {most} steps")
        for trial in self.view.get_live_trials():
            self._end(trial, "on_trial_remove")
        return self

    def running(self) -> list[Trial]:
        return [trial for trial in self.view.get_live_trials() if trial.status == RUNNING]

    def _start_or_add(self) -> bool:
        chosen = self.scheduler.choose_trial_to_run(self.view)
        assert chosen is self.scheduler.choose_trial_to_run(self.view), "asking must change nothing"
        if chosen is not None:
            assert chosen.status in (PENDING, PAUSED)
            self.view.trials[chosen.trial_id].status = RUNNING
            return True
        if not self._configs:
            return False
        self._add()
        return True

    def _add(self) -> None:
        trial = Trial(f"t{len(self.view.trials):03}", dict(self._configs.popleft()))
        self.view.trials[trial.trial_id] = trial
        self._call("on_trial_add", trial)

    def _idle(self) -> bool:
        asked = self._call("on_idle")
        return bool(asked) or self.scheduler.choose_trial_to_run(self.view) is not None

    def _step(self, trial: Trial) -> None:
        step = (trial.checkpoint or 0) + 1
        if self._fails.get(trial.trial_id) == step:
            self._end(trial, "on_trial_error", ERROR)
            return
        trial.last_result = {"training_iteration": step, **self._objective(trial.config, step)}
        trial.checkpoint = step
        decision = self._call("on_trial_result", trial, trial.last_result)
        if decision == "ERROR":
            self.errors[trial.trial_id] = decision.reason
            self._end(trial, "on_trial_error", ERROR)
        elif decision == "STOP" or step >= self._last_step:
            self._end(trial, "on_trial_complete", result=trial.last_result)
        elif decision == "PAUSE":
            trial.status = PAUSED

    def _end(
        self, trial: Trial, method: str, status: str = TERMINATED, result: Mapping[str, Any] | None = None
    ) -> None:
        trial.status = status
        self.ended[trial.trial_id] = trial.checkpoint or 0
        self._call(method, trial, result)

    def _call(self, method: str, trial: Trial | None = None, result: Mapping[str, Any] | None = None) -> Any:
        call = Call(method, copy.deepcopy(self.view), trial and trial.trial_id, copy.deepcopy(result))
        self.calls.append(call)
        arguments = [self.view, *([trial] if trial else []), *([result] if result is not None else [])]
        answer = getattr(self.scheduler, method)(*arguments)
        self.answers.append(comparable(answer))
        for request in (answer.requests if isinstance(answer, Decision) else answer) or ():
            self._carry_out(request)
        return answer

    def _carry_out(self, request: Any) -> None:
        trial = self.view.trials[request.trial_id]
        if isinstance(request, StopTrial):
            assert trial.status in (PENDING, PAUSED)
            self._end(trial, "on_trial_remove")
        elif isinstance(request, SetConfig):
            assert trial.status == PENDING
            trial.config = request.config
        elif isinstance(request, Exploit):
            donor = self.view.trials[request.donor_id]
            assert donor.status not in (TERMINATED, ERROR)
            trial.config, trial.checkpoint = request.config, request.checkpoint or donor.checkpoint
            self.exploits.append(request)
        elif isinstance(request, Resize):
            trial.resources = request.resources
        else:
            assert isinstance(request, Save)


def comparable(value: Any) -> Any:
    """A decision or the state of a scheduler as plain values."""
    if isinstance(value, Decision):
        return value.action, value.reason, list(value.requests)
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, Mapping):
        return {key: comparable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, deque, array.array)):
        return [comparable(item) for item in value]
    if isinstance(value, (str, int, float, set, frozenset, type(None))) or callable(value):
        return value
    if isinstance(value, (SetConfig, Save, StopTrial, Exploit, Resize)):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return comparable(replace(value).__dict__)
    return type(value).__name__, comparable(vars(value))


def assert_replays(toy: Toy, make: Callable[[], TrialScheduler]) -> None:
    """The recorded calls bring a fresh scheduler to the same answers and the same state."""
    fresh = make()
    assert [call.make(fresh) for call in toy.calls] == toy.answers
    assert comparable(fresh) == comparable(toy.scheduler)
