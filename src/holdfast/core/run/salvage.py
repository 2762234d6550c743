"""Reports that no driver received before it died: which of them have a checkpoint that can still be committed."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from enum import Enum, auto

from msgspec import Struct

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run.checkpointing import free_id
from holdfast.core.run.state import CheckpointRecord, Durable

NODES_JOIN_WITHIN_S = 10.0  # how long a start waits for nodes that are joining


class Leftover(Struct, frozen=True):
    """A checkpoint that nodes had gathered under an earlier driver, and that storage has not."""

    uploading: bool = False  # some node brings its part of it
    is_looked_at: bool = False  # storage is being asked what it has
    lacks: bool = False  # storage has said that something is missing, and no node has brought more since
    is_lost: bool = False  # a node cannot read its part any more
    is_refused: bool = False  # an upload failed


class Next(Enum):
    WAIT = auto()
    LOOK = auto()  # whether storage has all of it
    KEEP = auto()  # for a driver that meets the node with the rest
    GIVE_UP = auto()  # it will never be whole
    END_RUN = auto()


def next_for(left: Leftover) -> Next:
    """What happens to the checkpoint. If an upload fails, the run ends before it trains: the only copy is on a node,
    and another start can still save it."""
    if left.is_refused:
        return Next.END_RUN
    if left.uploading or left.is_looked_at:
        return Next.WAIT
    if not left.lacks:
        return Next.LOOK
    return Next.GIVE_UP if left.is_lost else Next.KEEP


def starts_without(is_known: bool, has_nodes: bool, is_busy: bool) -> bool:
    """Whether a run that has waited for nodes starts without the ones that are still absent. The files of the nodes
    that are present are uploaded first. ``is_known``: everything that these nodes had left is settled."""
    return is_known or not (has_nodes or is_busy)


class RankLog(Struct, frozen=True):
    """What one rank of the last attempt logged."""

    reports: int  # so many it made
    staged: Mapping[int, str | None]  # the reports with files, with the requested name, by index
    returned: bool = False
    lost: frozenset[int] = frozenset()  # the reports whose files have changed


def valid_until(before: Mapping[int, float], event: ev.AttemptStarted) -> dict[int, float]:
    """By attempt, its last report that the run has built on, when another attempt begins: of that one, all."""
    return {**{of: min(last, event.base) for of, last in before.items()}, event.attempt_number: math.inf}


def committable(
    durable: Durable, logs: Sequence[RankLog], given_up: Collection[tuple[int, int]], stored: Collection[str]
) -> list[do.Commit]:
    """The checkpoints of the last attempt that all its ranks had staged, after the newest known one, by report.

    ``logs`` has every rank's log. A checkpoint is complete when every rank that reports has made that report or has
    returned, as for a living driver. Checkpoints that an earlier driver gave up stay given up. ``stored``: ids in
    storage, also of checkpoints that are yet to be deleted.
    """
    newest = durable.newest.report if durable.newest is not None else 0
    names = set(stored)
    reporters = logs[:1] if durable.spec.rank_zero_only else logs
    found: list[do.Commit] = []
    for index in sorted({index for log in logs for index in log.staged}):
        report = durable.base + index + 1
        if not all(log.reports > index or log.returned for log in reporters):
            break  # and so for all later ones
        unusable = (durable.attempt_number, index) in given_up or any(index in log.lost for log in logs)
        if report <= newest or unusable:
            continue
        ranks = tuple(rank for rank, log in enumerate(logs) if index in log.staged)
        id = _id_of(durable, names, logs[ranks[0]].staged[index], report)
        names.add(id)
        found.append(do.Commit(durable.attempt_number, index, id, report, len(logs), ranks, validate=False))
    return found


def _id_of(durable: Durable, names: Collection[str], name: str | None, report: int) -> str:
    """It is unknown which names the dead driver had given to which checkpoints. In remote storage no other checkpoint
    may get one of these names."""
    if durable.spec.files.keep_names and name is not None:
        return f"{name}-g{durable.attempt_number}-r{report}"
    return free_id(durable, names, name, report)


def is_adoptable(
    state: Durable,
    found: CheckpointRecord,
    where: tuple[int, int],
    given_up: Collection[tuple[int, int]],
    valid_until: Mapping[int, float],
) -> bool:
    """Whether checkpoints that nodes had gathered under an earlier driver are uploaded: only those that are newer than
    storage, and only of the last attempt or its base. After the others the run has taken another path."""
    ahead = state.newest is None or found.report > state.newest.report
    unwanted = where in given_up or found.id in state.damaged
    return found.report <= valid_until.get(where[0], 0) and ahead and not unwanted
