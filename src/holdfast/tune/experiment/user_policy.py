"""The scheduler, the searcher and the stopper of an experiment, as its core asks them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from holdfast.core.experiment import events as ev
from holdfast.core.experiment.policy import Policy, Requests
from holdfast.core.experiment.scheduler_requests import KNOWN
from holdfast.core.experiment.state import ExperimentState
from holdfast.core.experiment.trial import ERROR, Trial
from holdfast.core.metric_names import flat_items, lookup
from holdfast.errors import message_of
from holdfast.train.ray_variables import NO_METRIC_CHECK, is_on
from holdfast.tune.foresight import next_decision
from holdfast.tune.result_metrics import reported_text
from holdfast.tune.schedulers.decision import Decision, Request
from holdfast.tune.schedulers.trial_scheduler import FIFOScheduler, TrialScheduler
from holdfast.tune.search.basic_variant import BasicVariantGenerator
from holdfast.tune.search.searcher import Searcher
from holdfast.tune.search.suggestion import complete, searched
from holdfast.tune.stopper import Stopper

from .stored_definition import filled, missing_in
from .trial_names import TrialNames

Bundles = Sequence[Mapping[str, float]]
_MISSING = object()
_NEVER = 1 << 60


@dataclass(frozen=True)
class UserPolicy(Policy):
    """``resources_of`` returns the resources that a trial with a config needs."""

    searcher: Searcher
    scheduler: TrialScheduler
    stopper: Stopper
    space: Mapping[str, Any]
    names: TrialNames
    resources_of: Callable[[dict[str, Any]], Bundles]
    metric: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "needs_population", self.scheduler.needs_population)

    @cached_property
    def gives_whole_configs(self) -> bool:
        return isinstance(_innermost(self.searcher), BasicVariantGenerator)

    def suggest(self, number: int) -> ev.Added | Literal["later", "finished"]:
        trial_id = self.names.id(number)
        suggestion = self.searcher.suggest(trial_id)
        if suggestion is None:
            return "later"
        if not isinstance(suggestion, dict):
            return "finished"
        config, given, params = suggestion, None, {}
        if not self.gives_whole_configs:
            config, given, params = complete(self.space, suggestion), suggestion, dict(flat_items(suggestion))
        params |= searched(self.space, config)
        name, directory = self.names.names(trial_id, number, config, params)
        resources = [dict(bundle) for bundle in self.resources_of(config)]
        return ev.Added(trial_id, config, params, name, directory, resources, given)

    def choose(self, state: ExperimentState) -> str | None:
        chosen = self.scheduler.choose_trial_to_run(state)
        return None if chosen is None else chosen.trial_id

    def free_until(self, trial_id: str, iteration: int) -> int:
        scheduler = next_decision(self.scheduler, "on_trial_result", trial_id, iteration)
        stopper = next_decision(self.stopper, "__call__", trial_id, iteration)
        return math.ceil(min(scheduler, stopper, _NEVER)) - 1

    def stops_all(self) -> bool:
        return self.stopper.stop_all()

    def searched(self, config: dict[str, Any]) -> dict[str, Any]:
        return searched(self.space, config)

    # What happens to trials

    def added(self, state: ExperimentState, trial: Trial, event: ev.Added, is_replay: bool) -> Requests:
        self.names.take(event.directory)
        if is_replay:  # an earlier driver had asked for it
            given = event.config if event.suggested is None else event.suggested
            drawn = self.searcher.replay_suggestion(event.trial, given)
            if isinstance(drawn, dict) and missing_in(trial.config):  # a function of sample_from may have made it
                self._fill(trial, drawn)
        return _known(self.scheduler.on_trial_add(state, trial))

    def _fill(self, trial: Trial, drawn: dict[str, Any]) -> None:
        try:
            trial.config = filled(trial.config, complete(self.space, drawn))
            trial.evaluated_params = {**trial.evaluated_params, **self.searched(trial.config)}
        except ValueError:
            pass  # the values of its config that were stored stay

    def resumed(self, state: ExperimentState, trial: Trial) -> Requests:
        self.searcher.on_trial_resume(trial.trial_id, trial.config)
        return _known(self.scheduler.on_trial_add(state, trial))

    def removed(self, state: ExperimentState, trial: Trial) -> Requests:
        return _known(self.scheduler.on_trial_remove(state, trial))

    def paused(self, trial: Trial) -> None:
        self.searcher.on_pause(trial.trial_id)

    def unpaused(self, trial: Trial) -> None:
        self.searcher.on_unpause(trial.trial_id)

    def reported(self, state: ExperimentState, trial: Trial) -> ev.Answer:
        result = trial.last_result
        missing = self._missing_metric(result)
        if missing:
            return ev.Answer("ERROR", missing)
        self.searcher.on_trial_result(trial.trial_id, result)
        try:
            stops = bool(result.get("done")) or self.stopper(trial.trial_id, result)
        except Exception as error:
            return ev.Answer("ERROR", f"the stop criterion raised {type(error).__name__}: {message_of(error)}")
        if stops:
            return ev.CRITERION_MET
        decision = Decision.of(self.scheduler.on_trial_result(state, trial, result))
        if decision.action == "CONTINUE" and not decision.requests:
            return ev.CONTINUE
        return ev.Answer(decision.action, decision.reason, _known(decision.requests))

    def ended(self, state: ExperimentState, trial: Trial, was_running: bool) -> Requests:
        last = dict(trial.last_result) or None
        failed = trial.status == ERROR
        self.searcher.on_trial_complete(trial.trial_id, result=last, error=failed)
        if failed:
            return _known(self.scheduler.on_trial_error(state, trial))
        if was_running:
            return _known(self.scheduler.on_trial_complete(state, trial, trial.last_result))
        return _known(self.scheduler.on_trial_remove(state, trial))

    def idled(self, state: ExperimentState) -> Requests:
        return _known(self.scheduler.on_idle(state))

    @cached_property
    def _judged_by(self) -> dict[str, str]:
        """The metrics that results are judged by, and who names them."""
        wanted = {"TuneConfig(metric)": self.metric}
        if not isinstance(self.scheduler, FIFOScheduler):
            wanted[f"{type(self.scheduler).__name__}(metric)"] = self.scheduler.metric
        if isinstance(self.searcher.metric, str):
            wanted[f"{type(self.searcher).__name__}(metric)"] = self.searcher.metric
        return {who: metric for who, metric in wanted.items() if metric}

    def _missing_metric(self, result: Mapping[str, Any]) -> str:
        """The error message if a result lacks the metric by which it is judged; otherwise empty."""
        if is_on(NO_METRIC_CHECK):
            return ""
        for who, metric in self._judged_by.items():
            if metric not in result and lookup(result, metric, _MISSING) is _MISSING:
                return f"a result has no {metric!r}, which {who} names; {reported_text(result, metric)}"
        return ""


def _known(requests: Iterable[Request] | None) -> tuple[Any, ...]:
    return tuple(request for request in requests or () if isinstance(request, KNOWN))


def _innermost(searcher: Searcher) -> Searcher:
    inner = getattr(searcher, "searcher", None)
    return searcher if inner is None else _innermost(inner)
