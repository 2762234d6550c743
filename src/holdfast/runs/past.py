"""A replayed journal of a run: drivers that start or recover, and readers, all use it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.core.run import events as ev
from holdfast.core.run import reconciliation
from holdfast.core.run import step as core
from holdfast.core.run.salvage import valid_until
from holdfast.core.run.state import Durable
from holdfast.store.journal import Record
from holdfast.store.manifests import Manifest


@dataclass
class Past:
    """The content of an earlier driver's journal."""

    state: Durable = field(default_factory=Durable)
    validations: dict[str, Any] = field(default_factory=dict)  # checkpoint id -> arguments
    validated: dict[str, Any] = field(default_factory=dict)  # checkpoint id -> metrics found
    attempts: list[ev.AttemptStarted] = field(default_factory=list)
    ended: ev.RunEnded | None = None
    identity: dict[str, Any] | None = None
    failures: list[tuple[float, ev.WorkerFailed]] = field(default_factory=list)
    given_up: set[tuple[int, int]] = field(default_factory=set)  # what storage failed on, by (attempt, index)
    is_damaged: bool = False  # something is wrong with the journal
    last_attempt: ev.AttemptStarted | None = None  # unless the run has taken over another run's checkpoint since
    committed: set[str] = field(default_factory=set)  # the ids of all checkpoints that ever existed
    valid_until: dict[int, float] = field(default_factory=dict)  # by attempt, its last report that the run built on

    def counts(self, manifest: Manifest) -> bool:
        """Whether a manifest in remote storage belongs to a checkpoint. A damaged journal may have lost its record."""
        return self.is_damaged or reconciliation.counts(self.state, self.retired, manifest.id, manifest.epoch)

    @property
    def retired(self) -> set[str]:
        """Checkpoints that were deleted for good. In remote storage, a late request may still restore a manifest: no
        other checkpoint has its name there."""
        return self.committed - {checkpoint.id for checkpoint in self.state.checkpoints} - self.state.damaged


IDENTITY = "RunConfigured"  # a record beside the machine's events: a second copy of run.json


def read_past(records: Iterable[Record], is_damaged: bool = False) -> Past:
    past = Past(is_damaged=is_damaged)
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
        case ev.AttemptStarted():
            past.attempts.append(event)
            past.last_attempt = event
            past.valid_until = valid_until(past.valid_until, event)
        case ev.Adopted():
            past.last_attempt = None
            past.valid_until = {}
        case ev.WorkerFailed():
            past.failures.append((time, event))
        case ev.CommitFailed() | ev.ShardFailed():
            past.given_up.add((event.attempt_number, event.index))
        case ev.Committed() if event.validation is not None:
            past.validations[event.record.id] = event.validation
        case ev.Validated():
            past.validated[event.id] = event.metrics
        case ev.RunEnded():
            past.ended = event
