"""The door that starting and recovering share: take the lease, replay the journal, compare it with what is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.core import events as ev
from holdfast.core import run as core
from holdfast.core.state import CheckpointRecord, RunState, ValidationStatus
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


IDENTITY = "RunConfigured"  # a record beside the machine's events: a second copy of run.json


def read_past(records: Iterable[Record]) -> Past:
    past = Past()
    for record in records:
        if record.kind == IDENTITY:
            past.identity = record.body
        for event in _events((record,)):
            past.state = core.replay(past.state, event)
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
        case ev.WorkerFailed():
            past.failures.append((time, event))
        case ev.Committed() if event.validation is not None:
            past.validations[event.record.id] = event.validation
        case ev.Validated():
            past.validated[event.id] = event.metrics
        case ev.RunEnded():
            past.ended = event


def reconcile(
    state: RunState, store: CheckpointStore, score_attribute: str | None
) -> tuple[list[ev.Event], list[Damage]]:
    """The events that make the journal's view agree with the manifests, which are what counts."""
    manifests, damage = store.scan()
    stored = {manifest.id: manifest for manifest in manifests}
    known = {checkpoint.id for checkpoint in state.checkpoints}
    events: list[ev.Event] = []
    for manifest in manifests:
        if manifest.id not in known:
            record = CheckpointRecord(manifest.id, manifest.report, score_of(manifest.metrics, score_attribute))
            events.append(ev.Committed(record, manifest.generation))
    named = {d.path.rpartition("/")[2].removesuffix(".json"): d.what for d in damage}
    for checkpoint in state.checkpoints:
        if checkpoint.id not in stored:
            events.append(ev.Damaged(checkpoint.id, named.get(checkpoint.id, "its manifest is gone")))
    return events, damage


def score_of(metrics: Any, attribute: str | None) -> float | None:
    """The number by which retention compares; "a/b" looks into nested metrics."""
    if attribute is None or not isinstance(metrics, dict):
        return None
    value: Any = metrics.get(attribute)
    if attribute not in metrics:
        value = metrics
        for part in attribute.split("/"):
            value = value.get(part) if isinstance(value, dict) else None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def record_of(manifest: Manifest, attribute: str | None, validate: bool) -> CheckpointRecord:
    status = ValidationStatus.PENDING if validate else ValidationStatus.NONE
    return CheckpointRecord(manifest.id, manifest.report, score_of(manifest.metrics, attribute), status)
