"""What an experiment's journal says of its trials, read without their code: no scheduler or searcher is asked again.

It is the fold by which a driver restores the experiment.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from msgspec import structs

from holdfast.core.experiment import events as ev
from holdfast.core.experiment.policy import Policy
from holdfast.core.experiment.records import event_of, replayed
from holdfast.core.experiment.result_row import row_of_result
from holdfast.core.experiment.state import ExperimentState
from holdfast.core.experiment.trial import Trial
from holdfast.core.metric_names import metric_number
from holdfast.errors import NotARunError
from holdfast.store import typed_values
from holdfast.store.journal import Record
from holdfast.store.location import Location

KIND = "experiment"  # in run.json
OF_TRIAL = ev.OfTrial.__name__
OVER = ev.Over.__name__
ENDED = ("TERMINATED", "ERROR")


class TrialRecord:
    """A trial as its experiment's journal has it. ``status`` is PENDING, RUNNING, PAUSED, TERMINATED or ERROR."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.id, self.name, self.directory = trial.trial_id, trial.name, trial.directory
        self.status, self.changed, self.results = trial.status, trial.changed, trial.results
        self.error, self.reason = trial.error or "", trial.reason

    @property
    def config(self) -> Mapping[str, Any]:
        return self.trial.config

    @property
    def params(self) -> Mapping[str, Any]:
        """The part of the config that was searched, by flat names."""
        return self.trial.evaluated_params

    @property
    def result(self) -> dict[str, Any]:
        """Its last result, with the config; empty before the first."""
        return self.trial.last_result

    @cached_property
    def metrics(self) -> dict[str, Any]:
        return {name: value for name, value in self.result.items() if name != "config"}

    @property
    def iteration(self) -> int:
        return int(self.result.get("training_iteration", 0))

    def known_as(self, name: str) -> bool:
        return name in (self.directory, self.name, self.id)


@dataclass
class ExperimentRecord:
    location: Location
    identity: Mapping[str, Any]
    trials: dict[str, TrialRecord] = field(default_factory=dict)
    is_over: bool = False
    changed: float | None = None

    @property
    def counts(self) -> Counter[str]:
        return Counter(trial.status for trial in self.trials.values())

    @property
    def best(self) -> TrialRecord | None:
        """By the last result of the metric that the experiment names."""
        metric, mode = self.identity.get("metric"), self.identity.get("mode")
        scored = [
            (v, t) for t in self.trials.values() if metric and (v := metric_number(t.metrics, metric)) is not None
        ]
        if not scored or mode not in ("min", "max"):
            return None
        return (max if mode == "max" else min)(scored, key=lambda pair: pair[0])[1]

    def find(self, name: str) -> TrialRecord:
        """By directory, name or id. NotARunError if there is none."""
        found = next((trial for trial in self.trials.values() if trial.known_as(name)), None)
        if found is None:
            raise NotARunError(
                f"{self.location} has no trial {name!r}: holdfast show {self.location} lists those that it has"
            )
        return found


def is_experiment(identity: Mapping[str, Any]) -> bool:
    return identity.get("kind") == KIND


def account(location: Location, identity: Mapping[str, Any], records: Iterable[Record]) -> ExperimentRecord:
    """What the records come to."""
    state = ExperimentState()
    for _ in replayed(state, records, Policy(), _event_of):
        pass
    trials = {id: TrialRecord(trial) for id, trial in state.trials.items()}
    return ExperimentRecord(location, identity, trials, state.is_over, state.changed)


def _event_of(kind: str, body: dict[str, Any]) -> ev.DurableEvent | None:
    """With configs as people read them: of values whose classes are not loaded here, what can be said of them."""
    event = event_of(kind, body)
    if isinstance(event, (ev.Added, ev.Exploited)):
        event = structs.replace(event, config=typed_values.from_json(event.config, typed_values.shown))
    if isinstance(event, ev.Added):
        event = structs.replace(event, params=typed_values.from_json(event.params, typed_values.shown))
    return event


def rows_by_trial(records: Iterable[Record]) -> dict[str, list[dict[str, Any]]]:
    """All results. What was reported again after a failure counts once, and what was undone does not."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    state, counted = ExperimentState(), Counter[str]()
    for _record, event in replayed(state, records, Policy()):
        if isinstance(event, ev.Reported) and event.trial in state.trials:
            trial = state.trials[event.trial]
            if trial.results == counted[event.trial]:
                continue  # it had been told to stop
            counted[event.trial] = trial.results
            own, row = rows[event.trial], row_of_result(event, trial)
            while own and own[-1]["training_iteration"] >= event.iteration:
                own.pop()
            own.append(row)
        elif isinstance(event, ev.Resumed) and event.anew:
            rows.pop(event.trial, None)
            counted.pop(event.trial, None)
    return rows


def own_records(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The history of each trial's own run, as a run's journal would have it; of its last life, if it began again."""
    own: dict[str, list[Record]] = {}
    for record in records:
        body = record.body
        if record.kind == OF_TRIAL:
            own.setdefault(body["trial"], []).append(Record(record.seq, record.time, body["kind"], body["body"]))
        elif record.kind == ev.Resumed.__name__ and body.get("anew"):
            own.pop(body["trial"], None)
    return own
