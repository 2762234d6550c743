"""The trials of an experiment, from its journal, read without their code: no scheduler or searcher is called.

It is the same fold by which a driver restores the experiment.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

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


class BestTrialResult(NamedTuple):
    """The best of all results of an experiment."""

    trial: str  # its id
    iteration: int
    value: float


@dataclass
class ExperimentRecord:
    location: Location
    identity: Mapping[str, Any]
    trials: dict[str, TrialRecord] = field(default_factory=dict)
    is_over: bool = False
    changed: float | None = None
    best_result: BestTrialResult | None = None

    @property
    def counts(self) -> Counter[str]:
        return Counter(trial.status for trial in self.trials.values())

    @property
    def best(self) -> TrialRecord | None:
        """The trial with the best of all results, which need not be its last one."""
        return None if self.best_result is None else self.trials.get(self.best_result.trial)

    @property
    def wanted(self) -> int | None:
        return trials_wanted(self.identity, len(self.trials), self.is_over)

    def find(self, name: str) -> TrialRecord:
        """By directory, name or id. NotARunError if there is none."""
        found = next((trial for trial in self.trials.values() if trial.known_as(name)), None)
        if found is None:
            raise NotARunError(f"{self.location} has no trial {name!r}: holdfast show {self.location} lists its trials")
        return found


def is_experiment(identity: Mapping[str, Any]) -> bool:
    return identity.get("kind") == KIND


def trials_wanted(identity: Mapping[str, Any], known: int, is_over: bool) -> int | None:
    """How many trials there will be; None if it is unknown, as with ``num_samples=-1``. Earlier versions did not store
    the total, and a grid search has more trials than samples."""
    if is_over:
        return known
    total = identity.get("total_trials", identity.get("num_samples"))
    return max(known, total) if isinstance(total, int) and total > 0 else None


def account(location: Location, identity: Mapping[str, Any], records: Iterable[Record]) -> ExperimentRecord:
    """The trials according to the records."""
    state, best = ExperimentState(), None
    metric, sign = identity.get("metric"), {"max": 1, "min": -1}.get(str(identity.get("mode")), 0)
    for _, event in replayed(state, records, Policy(), _event_of):
        if metric and sign and isinstance(event, ev.Reported):
            value = metric_number(event.metrics, metric)
            if value is not None and (best is None or sign * value > sign * best.value):
                best = BestTrialResult(event.trial, event.iteration, value)
    trials = {id: TrialRecord(trial) for id, trial in state.trials.items()}
    return ExperimentRecord(location, identity, trials, state.is_over, state.changed, best)


def _event_of(kind: str, body: dict[str, Any]) -> ev.DurableEvent | None:
    """With configs as people read them: of values whose classes are not loaded here, what can be said of them."""
    event = event_of(kind, body)
    if isinstance(event, (ev.Added, ev.Exploited)):
        event = structs.replace(event, config=typed_values.from_json(event.config, typed_values.shown))
    if isinstance(event, ev.Added):
        event = structs.replace(event, params=typed_values.from_json(event.params, typed_values.shown))
    return event


def rows_by_trial(records: Iterable[Record]) -> dict[str, list[dict[str, Any]]]:
    """All results. A result that was repeated after a failure counts once, and one that was undone does not count."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    state, counted = ExperimentState(), Counter[str]()
    for _record, event in replayed(state, records, Policy()):
        if isinstance(event, ev.Reported) and event.trial in state.trials:
            trial = state.trials[event.trial]
            if trial.results == counted[event.trial]:
                continue  # it was asked to stop
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
