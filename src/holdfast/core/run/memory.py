"""State in memory as a tier of recovery: newer than any checkpoint, and lost with the nodes that have it.

The newest state wins: a snapshot that was taken after the report of the newest checkpoint, or later, is used before it.
A snapshot is trusted only when its nodes have verified it and copied it to where it is needed. If that fails, the next
tier is the durable checkpoint. An attempt that starts from anything else discards the snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run.state import Phase, RunState, Snapshot, Tier
from holdfast.core.run.turn import Turn

SHARED = "shared"  # the piece that is the same on all ranks


def snapshot_taken(turn: Turn, event: ev.SnapshotTaken) -> str:
    taken, known = event.snapshot, turn.state.snapshot
    if not turn.is_current(taken.attempt_number):
        return "an attempt that is gone"
    if known is None or (known.attempt_number, known.step) < (taken.attempt_number, taken.step):
        turn.change(snapshot=taken)
    return f"step {taken.step} is in memory"


def snapshot_lost(turn: Turn, event: ev.SnapshotLost) -> str:
    known = turn.state.snapshot
    if known is None or (known.attempt_number, known.step) != (event.attempt_number, event.step):
        return "another snapshot has taken its place"
    turn.change(snapshot=event.instead, recalled=None)
    turn.do(do.Warn(f"the state of step {event.step} in memory cannot be used: {event.why}"))
    return f"step {event.step} is no longer in memory"


def recall(turn: Turn) -> bool:
    """Ask for the snapshot that the next attempt resumes from; False if it resumes from something else."""
    memory, world_size = turn.state.memory, turn.state.world_size
    if memory is None or world_size is None:
        return False
    turn.do(do.Recall(memory, world_size))
    return True


def recalled(turn: Turn, event: ev.Recalled) -> bool:
    """Whether this is the awaited snapshot."""
    memory = turn.state.memory
    waits = turn.state.phase in (Phase.RESTORING, Phase.WAITING)
    if not waits or memory is None or (memory.attempt_number, memory.step) != (event.attempt_number, event.step):
        return False
    turn.change(recalled=memory, is_moved=event.is_moved)
    return True


def next_attempt(state: RunState, attempt_number: int, world_size: int) -> ev.AttemptStarted:
    """The attempt with the newest state that has been verified."""
    offer, memory = state.offer, state.memory
    resume, base = (offer.id, offer.report) if offer is not None else (None, 0)
    if memory is None:
        tier = Tier.NONE if resume is None else Tier.CHECKPOINT
        return ev.AttemptStarted(attempt_number, world_size, resume, base, tier=tier)
    tier, which = Tier.PEER if state.is_moved else Tier.MEMORY, (memory.attempt_number, memory.step)
    streak = 0 if has_progressed(state) else state.durable.streak
    where = (attempt_number, world_size, None, memory.report)  # no checkpoint: none was verified
    return ev.AttemptStarted(*where, tier=tier, snapshot=which, streak=streak)


def has_progressed(state: RunState) -> bool:
    """Whether memory has steps that the last attempt completed. Then it made progress before it failed."""
    kept = state.recalled
    return kept is not None and (kept.attempt_number, kept.step) != state.began_at


def attempt_started(turn: Turn, event: ev.AttemptStarted) -> None:
    """A snapshot that it did not start from no longer belongs to the run."""
    kept = turn.state.snapshot if event.snapshot is not None else None
    if event.snapshot is not None and event.streak == 0:
        turn.record(streak=0)
    turn.change(snapshot=kept, recalled=None, is_moved=False, began_at=event.snapshot)


def replica_nodes(node: str, nodes: Sequence[str], replicas: int) -> list[str]:
    """The nodes that keep copies for this one: the next ones in a ring, so that each keeps as many as the others, and
    as many nodes as there are replicas can be lost at the same time."""
    if node not in nodes:
        return []
    ring = sorted(nodes)
    at = ring.index(node)
    return [ring[(at + i) % len(ring)] for i in range(1, min(replicas, len(ring) - 1) + 1)]


def pieces_of(snapshot: Snapshot, ranks: Iterable[int], world_size: int) -> list[str]:
    """What workers of these ranks need. Rank 0's is needed by all; with another number of workers, every rank's."""
    if world_size != snapshot.world_size:
        ranks = range(snapshot.world_size)
    return [SHARED, *(piece_of(rank) for rank in sorted({0, *ranks}))]


def piece_of(rank: int) -> str:
    return f"rank-{rank}"


def told(event: ev.AttemptStarted) -> str:
    """Where an attempt takes its state from, for a person."""
    if event.snapshot is not None:
        where = f"from {event.tier.value} (step {event.snapshot[1]:,}, report {event.base:,})"
    else:
        where = f"from {event.resume} (report {event.base:,})" if event.resume else "from the beginning"
    again = f", {event.redone:,} step{'' if event.redone == 1 else 's'} repeated" if event.redone else ""
    return f"{where}{again}"
