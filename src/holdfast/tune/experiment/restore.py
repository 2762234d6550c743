"""The journal of an experiment, taken in again; and what an earlier driver was about to write into it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from holdfast.core.experiment import events as ev
from holdfast.core.run.events import GroupStarted
from holdfast.core.run.state import Outcome
from holdfast.runs.history import LocalReports, RemoteReports, ReportReader, manifests_of
from holdfast.runs.past import read_past
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.tune.experiment.callback_delivery import TOLD, Backlog
from holdfast.tune.experiment.machine import Experiment
from holdfast.tune.experiment.stored_definition import config_from_store, config_to_store
from holdfast.tune.experiment.trial import Trial
from holdfast.tune.experiment.trial_storage import OF_TRIAL
from holdfast.tune.search.suggestion import searched

Kept = dict[str, list[Record]]
_BEGAN = ev.Began.__name__


def entry_of(event: ev.Event, space: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The event as the journal has it."""
    if type(event) is ev.Reported:  # very many; the metrics are as the journal can hold them
        return "Reported", {name: getattr(event, name) for name in event.__struct_fields__}
    if isinstance(event, (ev.Added, ev.Exploited)):
        config = config_to_store(event.config, space)
        params = {"params": config_to_store(event.params, {})} if isinstance(event, ev.Added) else {}
        event = msgspec.structs.replace(event, config=config, **params)
    return type(event).__name__, msgspec.to_builtins(event)


def event_of(record: Record, space: Mapping[str, Any]) -> ev.Event | None:
    kind = ev.KINDS.get(record.kind)
    if kind is None:
        return None
    event = msgspec.convert(record.body, kind)
    if isinstance(event, (ev.Added, ev.Exploited)):
        event = msgspec.structs.replace(event, config=config_from_store(event.config, space))
    if isinstance(event, ev.Added):
        params = {**config_from_store(event.params, {}), **searched(space, event.config)}
        event = msgspec.structs.replace(event, params=params)
    return event


def replay(experiment: Experiment, records: Iterable[Record], space: Mapping[str, Any]) -> tuple[Kept, Backlog]:
    """Bring the machine, its scheduler and its searcher to where an earlier driver left them. What is given back are
    the histories of the trials that may go on, and what callbacks may not have heard."""
    kept: Kept = {}
    backlog = Backlog()
    spent_s, began, last = 0.0, math.inf, 0.0
    for record in records:
        spent_s, began = (spent_s + max(0.0, last - began), record.time) if record.kind == _BEGAN else (spent_s, began)
        last = record.time
        if record.kind == OF_TRIAL:
            body = record.body
            kept.setdefault(body["trial"], []).append(Record(0, record.time, body["kind"], body["body"]))
            if body["kind"] == GroupStarted.__name__:
                trial = experiment.trial(body["trial"])
                trial.heard = min(trial.heard, body["body"]["base"])
            continue
        if record.kind == TOLD:
            backlog.is_told(record.body["count"])
            continue
        event = event_of(record, space)
        if event is None:
            continue
        if isinstance(event, ev.Added):
            experiment.replay_suggestion(event)
        _apply(experiment, event, backlog)
        good_end = isinstance(event, ev.Skipped) or (isinstance(event, ev.Ended) and not event.error)
        if good_end or (isinstance(event, ev.Resumed) and event.anew):
            kept.pop(event.trial, None)  # type: ignore[attr-defined]
    experiment.spent_s = spent_s + max(0.0, last - began)
    return kept, backlog


def _apply(experiment: Experiment, event: ev.Event, backlog: Backlog) -> None:
    if isinstance(event, ev.Reported):
        trial = experiment.trial(event.trial)
        before = trial.results
        experiment.apply(event)
        if trial.results > before:
            backlog.add(trial, trial.last_result)
        return
    experiment.apply(event)
    if isinstance(event, ev.Began):
        backlog.begins(event.marks)
    elif isinstance(event, ev.Ended | ev.Skipped):
        backlog.add(experiment.trial(event.trial), None)


def unheard(trial: Trial, home: Location, records: list[Record], patience_s: float) -> list[ev.Reported]:
    """Reports that are safe with a checkpoint, or with the run's good end, and that the driver died before it could
    write down: the trial will not make them again."""
    past = read_past(records)
    stored = {manifest.report: manifest.id for manifest in manifests_of(home, patience_s)}
    last = max(stored, default=0)
    if past.ended is not None and past.ended.outcome is Outcome.FINISHED:
        last = 1 << 62
    if last <= trial.heard or not past.groups:
        return []
    reader: ReportReader = RemoteReports(home, patience_s) if home.path is None else LocalReports(RunLayout(home.path))
    rows: dict[int, dict[str, Any]] = {}
    for group in past.groups:
        rows = {number: row for number, row in rows.items() if number <= group.base}
        rows.update({group.base + row["index"] + 1: row for row in reader.all(group.generation)})
    found = []
    for number in sorted(number for number in rows if trial.heard < number <= last):
        id = stored.get(number)
        metrics = dict(rows[number]["metrics"]) | ({"checkpoint_dir_name": id} if id is not None else {})
        moment = rows[number]["time"]
        found.append(ev.Reported(trial.trial_id, number, metrics, None if id is None else number, float(moment)))
    return found
