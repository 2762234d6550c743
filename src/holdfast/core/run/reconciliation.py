"""What a driver makes of what it finds in storage: manifests count, and what was decided for good stays decided."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from holdfast.core.run import events as ev
from holdfast.core.run.state import Durable


class Stored(NamedTuple):
    """What a manifest says."""

    event: ev.Committed  # if it is taken over
    report_index: int  # in its attempt


class Stock(NamedTuple):
    events: Sequence[ev.Event]  # that make the journal's view agree with what is stored
    unwanted: Sequence[str]  # what was given up, and a crash left something of
    damaged: Sequence[str]  # what an earlier driver found damaged, and could not set aside any more


def counts(durable: Durable, retired: Collection[str], id: str, epoch: int) -> bool:
    """Whether a manifest in remote storage, where what a relieved driver sent may land late, is of a checkpoint: those
    that the journal knows are, and those that its last driver could not journal any more.

    What an older driver committed is in the journal, or was judged by its successors, so what comes to light only now
    landed too late for them. No name is used twice there, so what was deleted for good stays deleted.
    """
    known = any(checkpoint.id == id for checkpoint in durable.checkpoints)
    return known or (epoch >= durable.epoch and id not in retired)


def reconcile(
    durable: Durable, given_up: Collection[tuple[int, int]], stored: Sequence[Stored], gone: Mapping[str, str]
) -> Stock:
    """``stored``: what counts, by report; ``gone``: committed checkpoints that have no intact manifest, and why.

    What was given up for good stays so, whatever a crash left of it: another attempt may have taken another way since.
    """
    known = {checkpoint.id for checkpoint in durable.checkpoints}
    events: list[ev.Event] = []
    unwanted: list[str] = []
    damaged: list[str] = []
    for event, index in stored:
        id = event.record.id
        if id in known:
            continue
        if (event.attempt_number, index) in given_up:
            unwanted.append(id)
        elif id in durable.damaged:
            damaged.append(id)
        else:
            events.append(event)
    events += [
        ev.Damaged(checkpoint.id, gone[checkpoint.id]) for checkpoint in durable.checkpoints if checkpoint.id in gone
    ]
    return Stock(events, unwanted, damaged)
