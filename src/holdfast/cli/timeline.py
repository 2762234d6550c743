"""What a run's journal tells, in words: drivers, groups, failures and what was done about each, and the end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from holdfast.core import events as ev
from holdfast.core import run as core
from holdfast.core.state import RunState
from holdfast.driver.accounts import Accounts
from holdfast.store.journal import Record


class Moment(NamedTuple):
    time: float
    kind: str  # "driver", "group", "failure", "damage", "stop" or "end"
    text: str
    cause: str | None = None  # a failure's class
    action: str | None = None  # what was done about it


def moments(records: Iterable[Record]) -> list[Moment]:
    accounts = Accounts(lambda _generation, _rank: "")  # for its words on what was done alone
    told: list[Moment] = []
    state, has_ended = RunState(), True
    for record in records:
        event_type = ev.DURABLE.get(record.kind)
        if event_type is None:
            continue
        event = msgspec.convert(record.body, event_type)
        before, state = state, core.replay(state, event)
        if state.failure is not None and state.failure is not before.failure:
            failure = state.failure
            told.append(Moment(record.time, "failure", failure.text, failure.kind.value, accounts.action(state)))
        telling = _tell(event, has_ended)
        if telling is not None:
            told.append(Moment(record.time, *telling))
        if isinstance(event, (ev.DriverStarted, ev.RunEnded)):
            has_ended = isinstance(event, ev.RunEnded)
    return told


def _tell(event: ev.Event, has_ended: bool) -> tuple[str, str] | None:
    match event:
        case ev.DriverStarted(epoch):
            died = "" if has_ended else "; the one before it had died without a word"
            return "driver", f"driver {epoch} started{died}"
        case ev.GroupStarted(generation, world_size, resume, base):
            since = f"from {resume} (report {base:,})" if resume else "from the beginning"
            return "group", f"attempt {generation} with {world_size} worker{'' if world_size == 1 else 's'} {since}"
        case ev.Damaged(id, why):
            return "damage", f"{id} was found damaged and set aside: {why}"
        case ev.StopAsked(at_once):
            return "stop", "asked to stop at once" if at_once else "asked to stop"
        case ev.RunEnded(outcome, reason):
            return "end", f"{outcome.value}: {reason}" if reason else outcome.value
    return None
