"""The door that starting and recovering share: take the lease, replay the journal, compare it with what is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.core.metric_names import lookup, number
from holdfast.core.run import events as ev
from holdfast.core.run import step as core
from holdfast.core.run.salvage import valid_until
from holdfast.core.run.state import CheckpointRecord, RunState, ValidationStatus
from holdfast.store.checkpoints import CheckpointStore, Manifest
from holdfast.store.journal import Record
from holdfast.store.sealed import Damage


@dataclass
class Past:
    """What an earlier driver's journal says."""

    state: RunState = field(default_factory=RunState)
    validations: dict[str, Any] = field(default_factory=dict)  # checkpoint id -> arguments
    validated: dict[str, Any] = field(default_factory=dict)  # checkpoint id -> metrics found
    groups: list[ev.GroupStarted] = field(default_factory=list)
    ended: ev.RunEnded | None = None
    identity: dict[str, Any] | None = None
    failures: list[tuple[float, ev.WorkerFailed]] = field(default_factory=list)
    given_up: set[tuple[int, int]] = field(default_factory=set)  # what storage failed on, by (generation, index)
    last_group: ev.GroupStarted | None = None  # unless the run has taken another's checkpoint since
    committed: set[str] = field(default_factory=set)  # the ids of all that ever were
    valid_until: dict[int, float] = field(default_factory=dict)  # by generation, its last report that the run built on

    @property
    def retired(self) -> set[str]:
        """What was deleted for good. In remote storage its manifest may still come back, with a request that is late:
        there no other checkpoint has its name."""
        return self.committed - {checkpoint.id for checkpoint in self.state.checkpoints} - self.state.damaged


IDENTITY = "RunConfigured"  # a record beside the machine's events: a second copy of run.json


def read_past(records: Iterable[Record]) -> Past:
    past = Past()
    for record in records:
        if record.kind == IDENTITY:
            past.identity = record.body
        for event in _events((record,)):
            past.state = core.replay(past.state, event)
            if isinstance(event, (ev.Committed, ev.Adopted)):
                past.committed.add(event.record.id)
            _remember(past, event, record.time)
    return past


def _events(records: Iterable[Record]) -> Iterator[ev.Event]:
    for record in records:
        kind = ev.DURABLE.get(record.kind)
        if kind is not None:
            yield msgspec.convert(record.body, kind)


def _remember(past: Past, event: ev.Event, time: float) -> None:
    match event:
        case ev.DriverStarted():
            past.ended = None
        case ev.GroupStarted():
            past.groups.append(event)
            past.last_group = event
            past.valid_until = valid_until(past.valid_until, event)
        case ev.Adopted():
            past.last_group = None
            past.valid_until = {}
        case ev.WorkerFailed():
            past.failures.append((time, event))
        case ev.CommitFailed() | ev.ShardFailed():
            past.given_up.add((event.generation, event.index))
        case ev.Committed() if event.validation is not None:
            past.validations[event.record.id] = event.validation
        case ev.Validated():
            past.validated[event.id] = event.metrics
        case ev.RunEnded():
            past.ended = event


def reconcile(past: Past, store: CheckpointStore, score_attribute: str | None) -> tuple[list[ev.Event], list[Damage]]:
    """The events that make the journal's view agree with the manifests, which are what counts.

    What was given up for good stays so, whatever a crash left of it: another group may have gone another way since.
    """
    manifests, damage = store.scan()
    stored = {manifest.id for manifest in manifests}
    known = {checkpoint.id for checkpoint in past.state.checkpoints}
    events: list[ev.Event] = []
    for manifest in manifests:
        if manifest.id in known:
            continue
        if (manifest.generation, manifest.index) in past.given_up:
            store.delete(manifest.id)
        elif manifest.id in past.state.damaged:
            store.quarantine(manifest.id, "it was found damaged by an earlier driver")
        else:
            events.append(committed(manifest, score_attribute, index=-1))
    named = {d.path.rpartition("/")[2].removesuffix(".json"): d.what for d in damage}
    for checkpoint in past.state.checkpoints:
        if checkpoint.id not in stored:
            events.append(ev.Damaged(checkpoint.id, named.get(checkpoint.id, "its manifest is gone")))
    return events, damage


def committed(manifest: Manifest, score_attribute: str | None, index: int) -> ev.Committed:
    status = ValidationStatus.NONE if manifest.validation is None else ValidationStatus.PENDING
    record = CheckpointRecord(manifest.id, manifest.report, score_of(manifest.metrics, score_attribute), status)
    return ev.Committed(record, manifest.generation, index, manifest.validation)


def score_of(metrics: Any, attribute: str | None) -> float | None:
    """The number by which retention compares; "a/b" looks into nested metrics."""
    if attribute is None or not isinstance(metrics, dict):
        return None
    return number(lookup(metrics, attribute))
