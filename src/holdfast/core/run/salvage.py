"""Reports that no driver heard before it died: which of them bring a checkpoint that can still be committed."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run.checkpointing import free_id
from holdfast.core.run.state import CheckpointRecord, Durable


class RankLog(Struct, frozen=True):
    """What one rank of the last attempt logged."""

    reports: int  # so many it made
    staged: Mapping[int, str | None]  # the reports that brought files, with the name asked for, by index
    returned: bool = False
    lost: frozenset[int] = frozenset()  # the reports whose files are not what they were


def valid_until(before: Mapping[int, float], event: ev.AttemptStarted) -> dict[int, float]:
    """By attempt, its last report that the run has built on, when another attempt begins: of that one, all."""
    return {**{of: min(last, event.base) for of, last in before.items()}, event.attempt_number: math.inf}


def committable(
    durable: Durable, logs: Sequence[RankLog], given_up: Collection[tuple[int, int]], stored: Collection[str]
) -> list[do.Commit]:
    """The checkpoints of the last attempt that all its ranks had staged, beyond the newest that is known, by report.

    ``logs`` has every rank's. A checkpoint is complete when every rank that reports has made that report or has
    returned, as it is for a living driver. What an earlier driver gave up stays given up. ``stored``: ids that storage
    has, also of what is yet to be deleted.
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
    """Which names the driver that died had given, and to what, is not known. In remote storage no other checkpoint may
    get one of them."""
    if durable.spec.remote and name is not None:
        return f"{name}-g{durable.attempt_number}-r{report}"
    return free_id(durable, names, name, report)


def is_adoptable(
    state: Durable,
    found: CheckpointRecord,
    where: tuple[int, int],
    given_up: Collection[tuple[int, int]],
    valid_until: Mapping[int, float],
) -> bool:
    """Whether what nodes had gathered under an earlier driver is brought to storage: only what is ahead of that, and
    only of the last attempt or what that was built on. After the others the run has taken another way."""
    ahead = state.newest is None or found.report > state.newest.report
    unwanted = where in given_up or found.id in state.damaged
    return found.report <= valid_until.get(where[0], 0) and ahead and not unwanted
