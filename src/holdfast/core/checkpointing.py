"""From staged shards to committed checkpoints: who has reported, what is whole, what may be committed, what may go."""

from __future__ import annotations

from msgspec import structs

from . import commands as do
from . import events as ev
from .retention import superseded
from .state import CheckpointRecord, Pending, RunState, ValidationStatus
from .turn import Turn


def shard_staged(turn: Turn, event: ev.ShardStaged) -> str:
    if not turn.is_current(event.generation):
        turn.do(do.Discard(event.generation, event.index))
        return "a group that is gone"
    rank = turn.state.ranks[event.rank]
    turn.set_rank(event.rank, reports=max(rank.reports, event.index + 1), seen=turn.now)
    if event.index in turn.state.given_up:
        turn.do(do.Discard(event.generation, event.index))
        return "storage failed on another part of that checkpoint"
    pending = turn.state.pending.get(event.index)
    if pending is None:
        report = turn.state.base + event.index + 1
        pending = Pending(id=_free_id(turn.state, event.name, report), report=report)
        if turn.state.spec.missing_warning_s > 0:
            turn.do(do.SetTimer(f"missing:{event.index}", turn.state.spec.missing_warning_s))
    staged = pending.staged | {event.rank}
    validate = pending.validate or event.validate
    turn.set_pending(event.index, structs.replace(pending, staged=staged, validate=validate))
    return f"rank {event.rank} staged its part of {pending.id}"


def _free_id(state: RunState, name: str | None, report: int) -> str:
    """The name asked for; with the generation behind it where an earlier checkpoint has that name already."""
    wanted = name or f"checkpoint_{report:06d}"
    taken = {c.id for c in state.checkpoints} | {p.id for p in state.pending.values()} | state.damaged
    if wanted not in taken:
        return wanted
    renamed = f"{wanted}-g{state.generation}"
    return renamed if renamed not in taken else f"{renamed}-r{report}"


def shard_sealed(turn: Turn, event: ev.ShardSealed) -> str:
    pending = turn.state.pending.get(event.index)
    if event.generation != turn.state.generation or pending is None:
        turn.do(do.Discard(event.generation, event.index))
        return "nobody waits for that shard any more"
    turn.set_pending(event.index, structs.replace(pending, sealed=pending.sealed | {event.rank}))
    return f"rank {event.rank}'s part of {pending.id} is on disk"


def commit_next(turn: Turn) -> None:
    """Commit in the order of the reports: the oldest pending checkpoint, when it is whole."""
    index, pending = next(iter(turn.state.pending.items()), (-1, None))
    if pending is None or pending.committing or pending.sealed != pending.staged or not turn.state.complete(index):
        return
    turn.set_pending(index, structs.replace(pending, committing=True))
    world_size, ranks = len(turn.state.ranks), tuple(sorted(pending.staged))
    where = (turn.state.generation, index, pending.id, pending.report)
    turn.do(do.Commit(*where, world_size=world_size, ranks=ranks, validate=pending.validate))
    turn.do(do.CancelTimer(f"missing:{index}"))


def committed(turn: Turn, event: ev.Committed) -> str:
    state, record = turn.state, event.record
    if any(c.id == record.id for c in reversed(state.checkpoints)):
        return "known already"
    checkpoints = (*state.checkpoints, record)
    if state.newest is not None and state.newest.report > record.report:
        checkpoints = tuple(sorted(checkpoints, key=lambda c: c.report))
    turn.change(checkpoints=checkpoints, damaged=state.damaged - {record.id})
    if event.index >= 0:
        turn.change(streak=0)
        if event.generation == state.generation:
            turn.set_pending(event.index, None)
    if record.validation is ValidationStatus.PENDING and event.index >= 0:  # else DriverStarted, next, asks for it
        turn.do(do.Validate(record.id))
    _retire(turn)
    return f"{record.id} is durable"


def _retire(turn: Turn) -> None:
    state = turn.state
    gone = superseded(state.checkpoints, state.spec, pinned={state.resume} if state.resume else set())
    if gone:
        turn.change(checkpoints=tuple(c for c in state.checkpoints if c.id not in gone))
        turn.do(*(do.Delete(id) for id in gone))


def validated(turn: Turn, event: ev.Validated) -> str:
    def updated(record: CheckpointRecord) -> CheckpointRecord:
        score = record.score if event.score is None else event.score
        return structs.replace(record, validation=event.status, score=score)

    turn.change(checkpoints=tuple(updated(c) if c.id == event.id else c for c in turn.state.checkpoints))
    _retire(turn)
    return f"validation of {event.id}: {event.status.value}"
