"""The experiment's machine: ``apply(event) -> commands``. It does no I/O and reads no clock.

All that decides what becomes of trials is here and in the scheduler, the searcher and the stopper, which hear of events
only from here, in the order of the journal. So replaying that on fresh ones brings everything back to where it was.
A decision that must survive is an event: the machine asks for it with ``Decide``, and acts when it comes back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from holdfast.core.experiment import events as ev
from holdfast.core.experiment.commands import Command, Decide, FailFast, LetGoOn, Run, StopRun
from holdfast.core.metric_names import flat_items, lookup
from holdfast.errors import message_of
from holdfast.runs.experiments import completed
from holdfast.store.location import Location
from holdfast.tune.experiment.trial_names import TrialNames
from holdfast.tune.foresight import next_decision
from holdfast.tune.metrics import reported_text
from holdfast.tune.schedulers.decision import Decision, Exploit, Request, Resize, Save, SetConfig, StopTrial
from holdfast.tune.schedulers.trial_scheduler import (
    ERROR,
    PAUSED,
    PENDING,
    RUNNING,
    TERMINATED,
    FIFOScheduler,
    TrialScheduler,
)
from holdfast.tune.search.basic_variant import BasicVariantGenerator
from holdfast.tune.search.searcher import Searcher
from holdfast.tune.search.suggestion import complete, searched
from holdfast.tune.stopper import Stopper

from .trial import Trial

Bundles = Sequence[Mapping[str, float]]


@dataclass(frozen=True)
class Spec:
    metric: str | None
    mode: str | None
    num_samples: int
    naming: TrialNames
    resources_of: Callable[[dict[str, Any]], Bundles]
    fail_fast: bool = False
    host: Mapping[str, Any] = field(default_factory=dict)  # what every result says of the machine


class Experiment:
    """Also the experiment as schedulers see it."""

    def __init__(
        self,
        spec: Spec,
        home: Location,
        param_space: Mapping[str, Any],
        searcher: Searcher,
        scheduler: TrialScheduler,
        stopper: Stopper,
        total_resources: Mapping[str, float],
    ) -> None:
        self.spec, self.home, self._space = spec, home, param_space
        self.searcher, self.scheduler, self.stopper = searcher, scheduler, stopper
        self.total_resources: Mapping[str, float] = total_resources
        self._trials: dict[str, Trial] = {}
        self._live: dict[str, Trial] = {}
        self._gives_whole_configs = isinstance(_innermost(searcher), BasicVariantGenerator)
        self._last_times: dict[str, float] = {}  # of live trials' last report or start
        self._commands: list[Command] = []
        self.callback_states: dict[tuple[int, str], dict[str, Any]] = {}
        self.exhausted = False  # the searcher has no more
        self.stopping = ""  # why no trial is started any more
        self.epoch = 0
        self._host: Mapping[str, Any] = {}  # what results say of the machine
        self.spent_s = 0.0
        self.is_over = False

    # As a scheduler sees it

    def get_trials(self) -> Sequence[Trial]:
        return list(self._trials.values())

    def get_live_trials(self) -> Sequence[Trial]:
        return list(self._live.values())

    def trial(self, trial_id: str) -> Trial:
        return self._trials[trial_id]

    def home_of(self, trial: Trial) -> Location:
        return self.home / trial.directory

    def get_trial(self, trial_id: str) -> Trial | None:
        return self._trials.get(trial_id)

    @property
    def count(self) -> int:
        return len(self._trials)

    def count_of(self, status: str) -> int:
        return sum(trial.status == status for trial in self._live.values())

    # What is to be done next

    def next_to_run(self) -> Trial | None:
        if self.stopping:
            return None
        chosen = self.scheduler.choose_trial_to_run(self)
        return None if chosen is None else self._trials[chosen.trial_id]

    def propose(self) -> ev.Added | None:
        """The next trial, if the searcher has one now."""
        if self.exhausted or self.stopping:
            return None
        if not self._gives_whole_configs and 0 <= self.spec.num_samples <= len(self._trials):
            self.exhausted = True
            return None
        trial_id = self.spec.naming.id(len(self._trials))
        suggestion = self.searcher.suggest(trial_id)
        if suggestion is None:
            return None
        if not isinstance(suggestion, dict):
            self.exhausted = True
            return None
        config = suggestion if self._gives_whole_configs else complete(self._space, suggestion)
        params = dict(searched(self._space, config))
        if not self._gives_whole_configs:
            params = {**dict(flat_items(suggestion)), **params}
        name, directory = self.spec.naming.names(trial_id, len(self._trials), config, params)
        resources = [dict(bundle) for bundle in self.spec.resources_of(config)]
        suggested = None if self._gives_whole_configs else suggestion
        return ev.Added(trial_id, config, params, name, directory, resources, suggested)

    def recover(self) -> list[ev.Event]:
        """What an earlier driver had decided and not yet carried out. Its processes are gone."""
        found: list[ev.Event] = []
        for trial in self._live.values():
            if trial.awaits:
                found.append(self.after_the_end(trial))
        return found

    def after_the_end(self, trial: Trial) -> ev.Event:
        """What follows for a trial that was stopped, now that its processes are gone."""
        if trial.awaits == "ERROR":
            return ev.Ended(trial.trial_id, trial.reason)
        if trial.awaits == "STOP":
            return ev.Ended(trial.trial_id, "", trial.reason)
        return ev.Paused(trial.trial_id)

    # What happened

    def apply(self, event: ev.Event) -> list[Command]:
        self._commands = []
        _HANDLERS[type(event)](self, event)
        return self._commands

    def _began(self, event: ev.Began) -> None:
        self.epoch, self._host, self.is_over = event.epoch, event.host, False
        self.exhausted, self.stopping = False, ""
        for trial in self._live.values():
            if trial.status == RUNNING and not trial.awaits:
                trial.status = PENDING

    def _added(self, event: ev.Added) -> None:
        if event.trial in self._trials:
            return
        where = event.trial, event.config, event.params, event.name, event.directory
        trial = self._trials[event.trial] = self._live[event.trial] = Trial(*where, event.resources)
        self._carry_out(self.scheduler.on_trial_add(self, trial))

    def replay_suggestion(self, event: ev.Added) -> None:
        """To the searcher, before ``apply``, where an earlier driver had asked it."""
        self.searcher.replay_suggestion(event.trial, event.config if event.suggested is None else event.suggested)

    def _started(self, event: ev.Started) -> None:
        trial = self._trials[event.trial]
        if trial.status == PAUSED:
            self.searcher.on_unpause(trial.trial_id)
        if trial.donor is not None:  # an exploit that failed; it counts, as no other may have its mark
            trial.donor, trial.exploits = None, trial.exploits + 1
        trial.status, trial.awaits, trial.reason = RUNNING, "", ""
        trial.restored_at = (trial.checkpoint_number or 0, trial.time_total_s)
        self._last_times[trial.trial_id] = event.time
        self._commands.append(Run(trial.trial_id))

    def _reported(self, event: ev.Reported) -> None:
        trial = self._trials[event.trial]
        if trial.status != RUNNING or trial.awaits:
            return  # it was told to stop before it said that
        result = self._result(trial, event)
        trial.last_result, trial.results, trial.heard = result, trial.results + 1, event.iteration
        if event.checkpoint is not None:
            trial.checkpoint_number = event.checkpoint
        decision = self._decide(trial, result)
        if decision.action == "CONTINUE":
            self._carry_out(decision.requests)
            if not trial.awaits:
                self._commands.append(LetGoOn(trial.trial_id, self._free_until(trial.trial_id, event.iteration)))
        else:
            trial.awaits, trial.reason = decision.action, decision.reason
            self._carry_out(decision.requests)
            self._commands.append(StopRun(trial.trial_id))
        if not self.stopping and self.stopper.stop_all():
            self._commands.append(Decide(ev.StopDecided("the stop criterion of the experiment is met")))

    def _free_until(self, trial: str, iteration: int) -> int:
        scheduler = next_decision(self.scheduler, "on_trial_result", trial, iteration)
        stopper = next_decision(self.stopper, "__call__", trial, iteration)
        return max(iteration, math.ceil(min(scheduler, stopper, _NEVER)) - 1)

    def _decide(self, trial: Trial, result: dict[str, Any]) -> Decision:
        missing = self._missing_metric(result)
        if missing:
            return Decision("ERROR", missing)
        self.searcher.on_trial_result(trial.trial_id, result)
        try:
            stops = bool(result.get("done")) or self.stopper(trial.trial_id, result)
        except Exception as error:
            return Decision("ERROR", f"the stop criterion raised {type(error).__name__}: {message_of(error)}")
        if stops:
            return Decision("STOP", "its stop criterion is met")
        return Decision.of(self.scheduler.on_trial_result(self, trial, result))

    @cached_property
    def _wanted(self) -> dict[str, str]:
        """What results are judged by, and who says so."""
        wanted = {"TuneConfig(metric)": self.spec.metric}
        if not isinstance(self.scheduler, FIFOScheduler):
            wanted[f"{type(self.scheduler).__name__}(metric)"] = self.scheduler.metric
        if isinstance(self.searcher.metric, str):
            wanted[f"{type(self.searcher).__name__}(metric)"] = self.searcher.metric
        return {who: metric for who, metric in wanted.items() if metric}

    def _missing_metric(self, result: Mapping[str, Any]) -> str:
        """What is wrong, if a result lacks what it is to be judged by."""
        for who, metric in self._wanted.items():
            if metric not in result and lookup(result, metric, _MISSING) is _MISSING:
                return f"a result has no {metric!r}, which {who} names; {reported_text(result, metric)}"
        return ""

    def _result(self, trial: Trial, event: ev.Reported) -> dict[str, Any]:
        """The metrics with what is added to every result."""
        last = self._last_times.get(trial.trial_id, event.time)
        took = max(0.0, event.time - last)
        self._last_times[trial.trial_id] = event.time
        trial.time_total_s += took
        when = (event.iteration, event.time, took, trial.time_total_s, trial.restored_at)
        result = completed(event.metrics, trial.trial_id, *when, event.checkpoint is not None, self._host)
        result["config"] = trial.config
        return result

    def _paused(self, event: ev.Paused) -> None:
        trial = self._trials[event.trial]
        was, trial.awaits = trial.awaits, ""
        trial.status = PENDING if was == "EXPLOIT" else PAUSED
        self.searcher.on_pause(trial.trial_id)

    def _exploited(self, event: ev.Exploited) -> None:
        trial = self._trials[event.trial]
        trial.donor, trial.exploits = None, trial.exploits + 1
        trial.config, trial.checkpoint_number = event.config, event.checkpoint
        trial.evaluated_params = {**trial.evaluated_params, **dict(searched(self._space, event.config))}

    def _ended(self, event: ev.Ended) -> None:
        trial = self._trials[event.trial]
        if trial.has_ended:
            return
        was_running = trial.status == RUNNING
        trial.status = ERROR if event.error else TERMINATED
        trial.awaits, trial.donor, trial.reason = "", None, event.reason
        trial.error = event.error or trial.error
        del self._live[trial.trial_id]
        self._last_times.pop(trial.trial_id, None)
        if trial.last_result:
            trial.last_result = {**trial.last_result, "done": True}
        last = dict(trial.last_result) or None
        self.searcher.on_trial_complete(trial.trial_id, result=last, error=bool(event.error))
        if event.error:
            self._carry_out(self.scheduler.on_trial_error(self, trial))
        elif was_running:
            self._carry_out(self.scheduler.on_trial_complete(self, trial, trial.last_result))
        else:
            self._carry_out(self.scheduler.on_trial_remove(self, trial))
        trial.pack()
        if event.error and self.spec.fail_fast:
            self._commands.append(FailFast(trial.trial_id))

    def _resumed(self, event: ev.Resumed) -> None:
        trial = self._trials[event.trial]
        trial.unpack()
        trial.status, trial.awaits, trial.error, trial.donor = PENDING, "", None, None
        if event.anew:
            trial.life += 1
            trial.directory = f"{trial.directory.partition('.restart-')[0]}.restart-{trial.life}"
            trial.last_result, trial.results, trial.time_total_s = {}, 0, 0.0
            trial.checkpoint_number, trial.heard = None, 0
        self._live[trial.trial_id] = trial
        self.searcher.on_trial_resume(trial.trial_id, trial.config)
        self._carry_out(self.scheduler.on_trial_add(self, trial))

    def _skipped(self, event: ev.Skipped) -> None:
        self._ended(ev.Ended(event.trial, "", "it was not to be resumed"))

    def _idled(self, _event: ev.Idled) -> None:
        self._carry_out(self.scheduler.on_idle(self))

    def _stop_decided(self, event: ev.StopDecided) -> None:
        self.stopping = event.reason
        for trial in list(self._live.values()):
            if trial.status == RUNNING and not trial.awaits:
                trial.awaits, trial.reason = "STOP", event.reason
                self._commands.append(StopRun(trial.trial_id))
            elif trial.status != RUNNING:
                self._commands.append(Decide(ev.Ended(trial.trial_id, "", event.reason)))

    def _callback_changed(self, event: ev.CallbackChanged) -> None:
        self.callback_states[event.place, event.name] = event.state

    def _over(self, _event: ev.Over) -> None:
        self.is_over = True

    def _carry_out(self, requests: Sequence[Request] | None) -> None:
        for request in requests or ():
            trial = self._trials[request.trial_id]
            match request:
                case SetConfig(config=config):
                    trial.config = dict(config)
                    trial.evaluated_params = {**trial.evaluated_params, **dict(searched(self._space, config))}
                case Save():
                    pass  # a class saves with every result behind which this may be asked; a function when it wants
                case StopTrial(reason=reason):
                    if not trial.has_ended:
                        self._commands.append(Decide(ev.Ended(trial.trial_id, "", reason)))
                case Resize(resources=resources):
                    trial.resources = [dict(bundle) for bundle in resources]
                case Exploit():
                    trial.donor = request
                    if trial.status == RUNNING and not trial.awaits:
                        trial.awaits, trial.reason = "EXPLOIT", f"it goes on from {request.donor_id}"
                        self._commands.append(StopRun(trial.trial_id))


def _innermost(searcher: Searcher) -> Searcher:
    inner = getattr(searcher, "searcher", None)
    return searcher if inner is None else _innermost(inner)


_MISSING = object()
_NEVER = 1 << 60
_HANDLERS: dict[type[ev.Event], Callable[[Experiment, Any], None]] = {
    ev.Began: Experiment._began,
    ev.Added: Experiment._added,
    ev.Started: Experiment._started,
    ev.Reported: Experiment._reported,
    ev.Paused: Experiment._paused,
    ev.Exploited: Experiment._exploited,
    ev.Ended: Experiment._ended,
    ev.Resumed: Experiment._resumed,
    ev.Skipped: Experiment._skipped,
    ev.Idled: Experiment._idled,
    ev.StopDecided: Experiment._stop_decided,
    ev.CallbackChanged: Experiment._callback_changed,
    ev.Over: Experiment._over,
}
