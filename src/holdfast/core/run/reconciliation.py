"""What a driver makes of what it finds in storage: manifests count, and what was decided for good stays decided."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from holdfast.core.run import events as ev
from holdfast.core.run.state import Durable


class Stored(NamedTuple):
    """What a manifest says."""

    event: ev.Committed  # if it counts
    report_index: int  # in its attempt
    epoch: int = 0  # of the driver that committed it; on a disk nobody needs it


class Stock(NamedTuple):
    events: Sequence[ev.Event]  # that make the journal's view agree with what is stored
    unwanted: Sequence[str]  # what was given up or deleted, and a crash left something of
    damaged: Sequence[str]  # what an earlier driver found damaged, and did not set aside any more


def reconcile(
    state: Durable,
    given_up: Collection[tuple[int, int]],
    retired: Collection[str],
    stored: Sequence[Stored],
    is_remote: bool,
    journal_damaged: bool = False,
    why: Mapping[str, str] | None = None,
) -> Stock:
    """``stored``: every intact manifest, by report; ``retired``: ids that were deleted for good; ``why``: what is wrong
    with manifests that cannot be read.

    In remote storage no name is used twice, and a request of a driver that was relieved may land at any time: its
    manifest counts only if no other driver has taken stock since. A damaged journal may have lost what it said.
    """
    known = {checkpoint.id for checkpoint in state.checkpoints}
    events: list[ev.Event] = []
    unwanted: list[str] = []
    damaged: list[str] = []
    for event, index, epoch in stored:
        id = event.record.id
        late = is_remote and not journal_damaged and (id in retired or epoch < state.epoch)
        if id in known:
            continue
        if (event.generation, index) in given_up or late:
            unwanted.append(id)
        elif id in state.damaged:
            damaged.append(id)
        else:
            events.append(event)
    there = {event.record.id for event, _, _ in stored}
    for checkpoint in state.checkpoints:
        if checkpoint.id not in there:
            events.append(ev.Damaged(checkpoint.id, (why or {}).get(checkpoint.id, "its manifest is gone")))
    return Stock(events, unwanted, damaged)
