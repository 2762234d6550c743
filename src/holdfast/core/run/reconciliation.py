"""How a driver interprets what it finds in storage: manifests count, and final decisions stay final."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from holdfast.core.run import events as ev
from holdfast.core.run.state import Durable


class Stored(NamedTuple):
    """The content of a manifest."""

    event: ev.Committed  # its report, if it is taken over
    report_index: int  # in its attempt


class Stock(NamedTuple):
    events: Sequence[ev.Event]  # that make the journal's view agree with storage
    unwanted: Sequence[str]  # checkpoints that were given up, of which a crash left parts
    damaged: Sequence[str]  # checkpoints that an earlier driver found damaged and could not set aside


def counts(durable: Durable, retired: Collection[str], id: str, epoch: int) -> bool:
    """Whether a manifest in remote storage, where writes of a driver that has lost the run may arrive late, belongs to
    a checkpoint: those that the journal knows do, and those that its last driver could not journal any more.

    Commits of an older driver are in the journal, or were judged by its successors, so one that appears only now
    arrived too late for them. No name is used twice there, so a deletion is final.
    """
    known = any(checkpoint.id == id for checkpoint in durable.checkpoints)
    return known or (epoch >= durable.epoch and id not in retired)


def reconcile(
    durable: Durable, given_up: Collection[tuple[int, int]], stored: Sequence[Stored], gone: Mapping[str, str]
) -> Stock:
    """``stored``: the checkpoints that count, by report; ``gone``: committed checkpoints without an intact manifest,
    and why.

    A checkpoint that was given up stays so, whatever a crash left of it: a later attempt may have taken another path.
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
