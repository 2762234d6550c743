"""Replays the journal of an experiment for the next driver, and finds what the earlier one was about to write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from msgspec import structs

from holdfast.core.experiment import events as ev
from holdfast.core.experiment import records as core
from holdfast.core.experiment.scheduler_requests import AnyRequest, Exploit, SetConfig
from holdfast.core.experiment.trial import Trial
from holdfast.core.run.state import Outcome
from holdfast.runs.past import read_past
from holdfast.runs.stored_run import StoredRun
from holdfast.store.journal import Record
from holdfast.store.location import Location
from holdfast.tune.search.suggestion import searched

from .callback_delivery import Backlog
from .live_experiment import LiveExperiment
from .stored_definition import config_from_store, config_to_store

Kept = dict[str, list[Record]]


def entry_of(event: ev.Event, space: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The event in its journalled form: values of a config that cannot be stored are represented by their place in the
    space."""
    if type(event) is ev.Reported and event.answer is None:  # very many
        return core.entry_of(event)
    if isinstance(event, (ev.Added, ev.Exploited)):
        event = structs.replace(event, config=config_to_store(event.config, space))
    if isinstance(event, ev.Added):
        given = None if event.suggested is None else config_to_store(event.suggested, space)
        event = structs.replace(event, params=config_to_store(event.params, {}), suggested=given)
    return core.entry_of(_with_requests(event, _to_store, space))


def event_of(kind: str, body: dict[str, Any], space: Mapping[str, Any]) -> ev.DurableEvent | None:
    event = core.event_of(kind, body)
    if isinstance(event, (ev.Added, ev.Exploited)):
        event = structs.replace(event, config=config_from_store(event.config, space))
    if isinstance(event, ev.Added):
        params = {**config_from_store(event.params, {}), **searched(space, event.config)}
        given = None if event.suggested is None else config_from_store(event.suggested, space)
        event = structs.replace(event, params=params, suggested=given)
    changed: ev.DurableEvent | None = _with_requests(event, _from_store, space)
    return changed


def _with_requests(event: Any, change: Any, space: Mapping[str, Any]) -> Any:
    answer: ev.Answer | None = getattr(event, "answer", None)
    if answer is None or not answer.requests:
        return event
    changed = tuple(change(request, space) for request in answer.requests)
    return structs.replace(event, answer=structs.replace(answer, requests=changed))


def _to_store(request: AnyRequest, space: Mapping[str, Any]) -> AnyRequest:
    if isinstance(request, SetConfig):
        return structs.replace(request, config=config_to_store(request.config, space))
    if isinstance(request, Exploit):
        configs = {name: config_to_store(getattr(request, name), space) for name in ("config", "donor_config")}
        return structs.replace(request, **configs, operations=config_to_store(request.operations, {}))
    return request


def _from_store(request: AnyRequest, space: Mapping[str, Any]) -> AnyRequest:
    if isinstance(request, SetConfig):
        return structs.replace(request, config=config_from_store(request.config, space))
    if isinstance(request, Exploit):
        configs = {name: config_from_store(getattr(request, name), space) for name in ("config", "donor_config")}
        return structs.replace(request, **configs)
    return request


def replay(experiment: LiveExperiment, records: Iterable[Record]) -> tuple[Kept, Backlog]:
    """Restore the experiment, its scheduler and its searcher to the state of an earlier driver. Returns the histories
    of the trials that may continue, and the events that callbacks may not have received."""
    kept: Kept = {}
    backlog = Backlog()
    results: dict[str, int] = {}
    state, policy = experiment.state, experiment.policy
    for record, event in core.replayed(state, records, policy, partial(event_of, space=policy.space)):
        match event:
            case ev.OfTrial(trial=trial_id, kind=kind, body=body):
                kept.setdefault(trial_id, []).append(Record(0, record.time, kind, body))
            case ev.Reported(trial=trial_id) if trial_id in state.trials:
                trial = state.trials[trial_id]
                if trial.results > results.get(trial_id, 0):
                    backlog.add(trial, trial.last_result)
                    experiment.best.note(trial, trial.last_result)
                results[trial_id] = trial.results
            case ev.Began():
                backlog.begins(event.marks)
            case ev.CallbacksTold(count=count):
                backlog.mark_told(count)
            case ev.Ended(trial=trial_id) | ev.Skipped(trial=trial_id) if trial_id in state.trials:
                backlog.add(state.trials[trial_id], None)
                if not getattr(event, "error", ""):
                    kept.pop(trial_id, None)
            case ev.Resumed(trial=trial_id, anew=True):
                kept.pop(trial_id, None)
                results.pop(trial_id, None)
            case _:
                pass
    return kept, backlog


def unheard(trial: Trial, home: Location, records: list[Record], patience_s: float) -> list[ev.Reported]:
    """Reports that were saved with a checkpoint, or when the run finished, and that the driver could not journal before
    it died. The trial will not make them again."""
    past = read_past(records)
    run = StoredRun(home, patience_s)
    stored = {manifest.report: manifest.id for manifest in run.store.checkpoints.scan(lambda: past.counts)[0]}
    last = max(stored, default=0)
    if past.ended is not None and past.ended.outcome is Outcome.FINISHED:
        last = 1 << 62
    if last <= trial.heard or not past.attempts:
        return []
    rows: dict[int, dict[str, Any]] = {}
    for attempt in past.attempts:
        rows = {number: row for number, row in rows.items() if number <= attempt.base}
        rows.update({attempt.base + row["index"] + 1: row for row in run.reports(attempt.attempt_number)})
    found = []
    for number in sorted(number for number in rows if trial.heard < number <= last):
        id = stored.get(number)
        metrics = dict(rows[number]["metrics"]) | ({"checkpoint_dir_name": id} if id is not None else {})
        moment = rows[number]["time"]
        found.append(ev.Reported(trial.trial_id, number, metrics, None if id is None else number, float(moment)))
    return found


def has_finished(records: list[Record]) -> bool:
    """Whether the trial's run had finished."""
    ended = read_past(records).ended
    return ended is not None and ended.outcome is Outcome.FINISHED
