"""Events as the journal has them, and the one fold of a journal: restoring drivers and readers take it in alike.

Records of a kind that this version does not know are passed over: a later one wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

import msgspec

from holdfast.core.experiment import events as ev
from holdfast.core.experiment.policy import Policy
from holdfast.core.experiment.state import ExperimentState
from holdfast.core.experiment.step import replay


class JournalRecord(Protocol):
    @property
    def time(self) -> float: ...
    @property
    def kind(self) -> str: ...
    @property
    def body(self) -> dict[str, Any]: ...


R = TypeVar("R", bound=JournalRecord)


def entry_of(event: ev.Event) -> tuple[str, dict[str, Any]]:
    """The event's kind and body."""
    kind = type(event)
    if kind is ev.Reported or kind is ev.OfTrial:  # very many; the journal holds all that is in them as it is
        body = {name: getattr(event, name) for name in kind.__struct_fields__}
        if body.get("answer") is not None:
            body["answer"] = msgspec.to_builtins(body["answer"])
    else:
        body = msgspec.to_builtins(event)
    if body.get("answer", False) is None:
        del body["answer"]
    return kind.__name__, body


def event_of(kind: str, body: dict[str, Any]) -> ev.DurableEvent | None:
    known = ev.KINDS.get(kind)
    return None if known is None else msgspec.convert(body, known)


def replayed(
    state: ExperimentState,
    records: Iterable[R],
    policy: Policy,
    decode: Callable[[str, dict[str, Any]], ev.DurableEvent | None] = event_of,
) -> Iterator[tuple[R, ev.DurableEvent]]:
    """Fold the records one by one. Yields each with its event, after the state has taken it in."""
    spent_s, began, last = 0.0, float("inf"), 0.0
    for record in records:
        event = decode(record.kind, record.body)
        if isinstance(event, ev.Began):
            spent_s, began = spent_s + max(0.0, last - began), record.time
            if event.spent_s is not None:  # its records before this one do not belong to its predecessor's time
                spent_s = event.spent_s
        state.changed = last = record.time
        state.spent_s = spent_s + max(0.0, last - began)
        if event is not None:
            replay(state, event, record.time, policy)
            yield record, event
