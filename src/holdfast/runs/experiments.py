"""What an experiment's journal says of its trials, read without their code: no scheduler or searcher is asked again.

The records are those of ``holdfast.core.experiment.events``, by name. What later versions add is passed over.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from holdfast.core.metric_names import metric_number
from holdfast.errors import NotARunError, StorageError, StorageUnavailableError, WorkerGroupError
from holdfast.runs.history import (
    PATIENCE_S,
    History,
    LocalReports,
    RemoteReports,
    ReportReader,
    manifests_of,
    read_identity,
    read_records,
)
from holdfast.runs.history import load as load_run
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location

KIND = "experiment"  # in run.json
OF_TRIAL = "OfTrial"  # a record of a trial's own run
OVER = "Over"  # the record that all trials have ended
ENDED = ("TERMINATED", "ERROR")


@dataclass
class TrialRecord:
    """A trial as its experiment's journal has it. ``status`` is PENDING, RUNNING, PAUSED, TERMINATED or ERROR."""

    id: str
    name: str
    directory: str
    config: Mapping[str, Any]
    params: Mapping[str, Any]  # the part that was searched, by flat names
    status: str = "PENDING"
    metrics: dict[str, Any] = field(default_factory=dict)  # of its last result
    iteration: int = 0
    results: int = 0
    time_total_s: float = 0.0
    checkpoint_number: int | None = None
    changed: float = 0.0
    error: str = ""
    reason: str = ""
    life: int = 0
    _since: float = 0.0
    _restored_at: tuple[int, float] = (0, 0.0)  # the iteration and the total time at its last start

    def known_as(self, name: str) -> bool:
        return name in (self.directory, self.name, self.id)


@dataclass
class ExperimentRecord:
    location: Location
    identity: Mapping[str, Any]
    trials: dict[str, TrialRecord] = field(default_factory=dict)
    is_over: bool = False
    changed: float | None = None
    host: Mapping[str, Any] = field(default_factory=dict)  # of its last driver

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
    found = ExperimentRecord(location, identity)
    for record in records:
        found.changed = record.time
        handler = _HANDLERS.get(record.kind)
        if handler is not None:
            handler(found, record.body, record.time)
    return found


def rows_by_trial(records: Iterable[Record]) -> dict[str, list[dict[str, Any]]]:
    """All results. What was reported again after a failure counts once, and what was undone does not."""
    found = ExperimentRecord(Location("", ""), {})
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        handler = _HANDLERS.get(record.kind)
        if handler is None:
            continue
        handler(found, record.body, record.time)
        if record.kind == "Reported" and record.body["trial"] in found.trials:
            own = rows[record.body["trial"]]
            while own and own[-1]["training_iteration"] >= record.body["iteration"]:
                own.pop()
            own.append(found.trials[record.body["trial"]].metrics)
        elif record.kind == "Resumed" and record.body.get("anew"):
            rows.pop(record.body["trial"], None)
    return rows


def completed(
    metrics: Mapping[str, Any],
    trial: str,
    iteration: int,
    moment: float,
    took: float,
    total_s: float,
    restored_at: tuple[int, float],
    has_checkpoint: bool,
    host: Mapping[str, Any],
) -> dict[str, Any]:
    """A result: the metrics that were reported, with what is added to all of them."""
    since, total_before = restored_at
    return {
        **metrics,
        "timestamp": int(moment),
        "checkpoint_dir_name": metrics.get("checkpoint_dir_name") if has_checkpoint else None,
        "done": bool(metrics.get("done", False)),
        "training_iteration": iteration,
        "trial_id": trial,
        "date": _date(int(moment)),
        "time_this_iter_s": took,
        "time_total_s": total_s,
        **host,
        "time_since_restore": total_s - total_before,
        "iterations_since_restore": max(0, iteration - since),
    }


@lru_cache(16)
def _date(second: int) -> str:
    return time.strftime("%Y-%m-%d_%H-%M-%S", time.gmtime(second))


def own_records(records: Iterable[Record], trial: str) -> list[Record]:
    """The history of a trial's own run, as a run's journal would have it; of its last life, if it began anew."""
    own: list[Record] = []
    for record in records:
        body = record.body
        if record.kind == OF_TRIAL and body["trial"] == trial:
            own.append(Record(record.seq, record.time, body["kind"], body["body"]))
        elif record.kind == "Resumed" and body["trial"] == trial and body.get("anew"):
            own = []
    return own


# What the records do


def _began(found: ExperimentRecord, body: Mapping[str, Any], _time: float) -> None:
    found.is_over, found.host = False, body.get("host", {})
    for trial in found.trials.values():
        if trial.status == "RUNNING":
            trial.status = "PENDING"


def _added(found: ExperimentRecord, body: Mapping[str, Any], moment: float) -> None:
    id = body["trial"]
    about = (body["name"], body["directory"], body["config"], body["params"])
    found.trials.setdefault(id, TrialRecord(id, *about, changed=moment))


def _over(found: ExperimentRecord, _body: Mapping[str, Any], _time: float) -> None:
    found.is_over = True


_Change = Callable[[TrialRecord, Mapping[str, Any], ExperimentRecord], None]


def _of_trial(change: _Change) -> Callable[[ExperimentRecord, Mapping[str, Any], float], None]:
    def handle(found: ExperimentRecord, body: Mapping[str, Any], moment: float) -> None:
        trial = found.trials.get(body["trial"])
        if trial is not None:
            trial.changed = moment
            change(trial, body, found)

    return handle


def _started(trial: TrialRecord, body: Mapping[str, Any], _found: ExperimentRecord) -> None:
    trial.status, trial._since = "RUNNING", body["time"]
    trial._restored_at = (trial.checkpoint_number or 0, trial.time_total_s)


def _reported(trial: TrialRecord, body: Mapping[str, Any], found: ExperimentRecord) -> None:
    took = max(0.0, body["time"] - trial._since) if trial._since else 0.0
    trial._since = body["time"]
    trial.time_total_s += took
    trial.iteration, trial.results = body["iteration"], trial.results + 1
    checkpoint = body.get("checkpoint")
    trial.checkpoint_number = trial.checkpoint_number if checkpoint is None else checkpoint
    when = (body["iteration"], body["time"], took, trial.time_total_s, trial._restored_at)
    trial.metrics = completed(body["metrics"], trial.id, *when, checkpoint is not None, found.host)


def _paused(trial: TrialRecord, _body: Mapping[str, Any], _found: ExperimentRecord) -> None:
    trial.status = "PAUSED"


def _exploited(trial: TrialRecord, body: Mapping[str, Any], _found: ExperimentRecord) -> None:
    trial.config, trial.status, trial.checkpoint_number = body["config"], "PENDING", body.get("checkpoint")


def _ended(trial: TrialRecord, body: Mapping[str, Any], _found: ExperimentRecord) -> None:
    error = body.get("error", "")
    trial.status, trial.error = ("ERROR", error) if error else ("TERMINATED", trial.error)
    trial.reason = body.get("reason", "")


def _skipped(trial: TrialRecord, _body: Mapping[str, Any], _found: ExperimentRecord) -> None:
    trial.status, trial.reason = "TERMINATED", "it was not to be resumed"


def _resumed(trial: TrialRecord, body: Mapping[str, Any], _found: ExperimentRecord) -> None:
    trial.status, trial.error, trial.reason = "PENDING", "", ""
    if body.get("anew"):
        trial.life += 1
        trial.directory = f"{trial.directory.partition('.restart-')[0]}.restart-{trial.life}"
        trial.metrics, trial.iteration, trial.results, trial.time_total_s, trial._since = {}, 0, 0, 0.0, 0.0
        trial.checkpoint_number = None


_HANDLERS: dict[str, Callable[[ExperimentRecord, Mapping[str, Any], float], None]] = {
    "Began": _began,
    "Added": _added,
    "Started": _of_trial(_started),
    "Reported": _of_trial(_reported),
    "Paused": _of_trial(_paused),
    "Exploited": _of_trial(_exploited),
    "Ended": _of_trial(_ended),
    "Skipped": _of_trial(_skipped),
    "Resumed": _of_trial(_resumed),
    OVER: _over,
}


# A trial's history


class TrialHistory(History):
    """As a run's, with the results as the experiment has them."""

    def __init__(self, location: Location, trial: TrialRecord, records: Sequence[Record], patience_s: float) -> None:
        reader: ReportReader = RemoteReports(location, patience_s)
        if location.path is not None:
            reader = LocalReports(RunLayout(location.path))
        own = own_records(records, trial.id)
        identity = {"train_loop_config": dict(trial.config)}
        super().__init__(location, identity, own, manifests_of(location, patience_s), reader)
        self._trial, self._all_records = trial, records
        if trial.status == "ERROR":
            self.error = WorkerGroupError(trial.error, {0: RuntimeError(trial.error)})
        else:
            self.error = None

    @property
    def metrics(self) -> dict[str, Any] | None:
        trial = self._trial
        if not trial.metrics:
            return None
        done = trial.status in ENDED or trial.metrics["done"]
        return {**trial.metrics, "done": done, "config": dict(trial.config)}

    @property
    def rows(self) -> list[dict[str, Any]]:
        id = self._trial.id
        return rows_by_trial(r for r in self._all_records if r.body.get("trial", id) == id).get(id, [])


def trial_of(location: Location, patience_s: float = PATIENCE_S) -> TrialHistory | None:
    """The history of the trial whose directory that is; None if it is none of an experiment's."""
    experiment = location.parent
    try:
        identity = read_identity(experiment, patience_s)
    except StorageUnavailableError:
        raise
    except StorageError:
        return None
    if not is_experiment(identity):
        return None
    records = read_records(experiment, patience_s)
    trial = account(experiment, identity, records).find(location.name)
    return TrialHistory(experiment / trial.directory, trial, records, patience_s)


def load(location: Location, patience_s: float = PATIENCE_S) -> History:
    """Of a run or of a trial. NotARunError if it is neither."""
    try:
        identity = read_identity(location, patience_s)
    except NotARunError:
        trial = trial_of(location, patience_s)
        if trial is None:
            raise
        return trial
    if is_experiment(identity):
        raise NotARunError(
            f"{location} is an experiment, which has a result for each trial: give a trial's directory, or use "
            "Tuner.restore(path, trainable).get_results()"
        )
    return load_run(location, patience_s)
