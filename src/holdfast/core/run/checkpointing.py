"""From staged shards to committed checkpoints: which ranks have reported, and what is complete, may be committed or may
be deleted."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import structs

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import timers
from holdfast.core.run.retention import superseded
from holdfast.core.run.state import CheckpointRecord, Durable, Pending, Ranks, RankSet, ValidationStatus
from holdfast.core.run.turn import Turn

_FIRST_WARNING_S = 5.0  # until ranks are named that do not report: if only rank 0 reports, nothing is saved
_UPLOADS_AT_ONCE = 2  # each is sent in parallel parts already; a second one fills the gaps


def shard_staged(turn: Turn, event: ev.ShardStaged) -> str:
    if not turn.is_current(event.attempt_number):
        if turn.find_pending(event.attempt_number, event.index) is None:
            turn.do(do.Discard(event.attempt_number, event.index))
        return "an attempt that is gone"
    turn.saw_reports(event.rank, event.index + 1)
    if turn.state.attempt is not None and event.index in turn.state.attempt.given_up:
        turn.do(do.Discard(event.attempt_number, event.index))
        return "storage failed on another part of that checkpoint"
    pending = turn.state.pending.get(event.index) or _begin(turn, event)
    staged = pending.staged.adding(event.rank)
    pending = structs.replace(pending, staged=staged, validate=pending.validate or event.validate)
    if event.urgent:
        pending = structs.replace(pending, awaited_by=pending.awaited_by.adding(event.rank), due=True)
    turn.set_pending(pending)
    return f"rank {event.rank} staged its part of {pending.id}"


def _begin(turn: Turn, event: ev.ShardStaged) -> Pending:
    state, names = turn.state, turn.state.attempt.names if turn.state.attempt is not None else frozenset()
    report = state.base + event.index + 1
    id = free_id(state.durable, names.union(p.id for p in state.unsaved), event.name, report)
    if state.spec.files.keep_names:
        turn.change_attempt(names=names | {id})
    if state.spec.missing_warning_s > 0:
        patience = state.spec.missing_warning_s
        turn.do(do.SetTimer(timers.missing(event.index), patience if event.index else min(patience, _FIRST_WARNING_S)))
    return Pending(id, report, event.attempt_number, event.index, world_size=len(state.ranks))


def free_id(durable: Durable, names: Collection[str], name: str | None, report: int) -> str:
    """The requested name. If an earlier checkpoint has it, or it is one of ``names``, the number of the attempt is
    appended.

    Where files are uploaded no name is used twice in a run, not even after a deletion: a request that was on its way
    when a driver or a node died may arrive at any time, and must not meet the files of another checkpoint. Names of the
    first attempt stay as they are, unless they end like those of a later one.
    """
    wanted = name or f"checkpoint_{report:06d}"
    if durable.spec.files.keep_names and (durable.attempt_number > 1 or _ends_with_an_attempt(wanted)):
        wanted = f"{wanted}-g{durable.attempt_number}"
    taken = {c.id for c in durable.checkpoints} | durable.damaged | set(names)
    if wanted not in taken:
        return wanted
    renamed = f"{wanted}-g{durable.attempt_number}"
    return renamed if renamed not in taken else f"{renamed}-r{report}"


def _ends_with_an_attempt(name: str) -> bool:
    _, mark, number = name.rpartition("-g")
    return bool(mark) and number.replace("-r", "", 1).isdigit()


def shard_sealed(turn: Turn, event: ev.ShardSealed) -> str:
    pending = turn.find_pending(event.attempt_number, event.index)
    if pending is None:
        turn.do(do.Discard(event.attempt_number, event.index))
        return "that shard is no longer needed"
    turn.set_pending(structs.replace(pending, sealed=pending.sealed.adding(event.rank)))
    return f"rank {event.rank}'s part of {pending.id} is hashed"


def shard_uploaded(turn: Turn, event: ev.ShardUploaded) -> str:
    pending = turn.find_pending(event.attempt_number, event.index)
    if pending is None:
        return "that shard is no longer needed"
    turn.set_pending(structs.replace(pending, uploaded=pending.uploaded.adding(event.rank)))
    return f"rank {event.rank}'s part of {pending.id} is in storage"


def upload_again(turn: Turn, event: ev.UploadFailed) -> None:
    """Upload again the parts that were refused, or commit again. Parts that are still being uploaded are not uploaded
    twice."""
    pending = turn.find_pending(event.attempt_number, event.index)
    if pending is not None and not event.ranks:
        turn.set_pending(structs.replace(pending, committing=False))
    elif pending is not None:
        refused = RankSet.of(*(rank for rank in event.ranks if rank not in pending.uploaded))
        turn.set_pending(structs.replace(pending, refused=pending.refused | refused))


def storage_lags(turn: Turn, event: ev.StorageLags) -> str:
    if event.stalled != turn.state.stalled:
        turn.change(stalled=event.stalled)
        turn.do(do.Stall(event.stalled))
        waited = (structs.replace(rank, seen=turn.now) for rank in turn.state.ranks)  # which is not a hang
        turn.change_attempt(ranks=Ranks(waited))
    if event.stalled:
        sync(turn)
    return f"{event.checkpoints} checkpoints wait for storage"


def staged_lost(turn: Turn, event: ev.StagedLost) -> str:
    pending = next((p for p in turn.state.unsaved if p.id == event.id), None)
    if pending is None:
        return "it is no longer needed"
    if pending.is_uploaded:
        turn.set_pending(structs.replace(pending, lost=True))
        return f"{event.id} is in storage, and will be committed"
    turn.drop_pending(pending)
    missed = turn.state.attempt.missed if turn.state.attempt is not None else None
    if missed is None or missed.report < pending.report:
        turn.change_attempt(missed=pending)
    if pending.attempt_number == turn.state.attempt_number:
        give_up(turn, pending.index)
    turn.do(do.Discard(pending.attempt_number, pending.index), do.Warn(f"{event.id} was not saved: {event.why}"))
    return f"{event.id} is lost"


def give_up(turn: Turn, index: int) -> None:
    """Give up the checkpoint of report ``index``: none of its parts will be stored."""
    if turn.state.attempt is not None:
        turn.change_attempt(given_up=turn.state.attempt.given_up | {index})


def carry(turn: Turn) -> None:
    """The attempt has ended and another follows: its complete checkpoints are uploaded while that one trains."""
    if turn.state.pending and turn.state.spec.files.outlive_attempt:
        turn.change(carried=turn.state.unsaved)
        turn.change_attempt(pending={})


def sync(turn: Turn) -> None:
    """The sync period is over: complete checkpoints are uploaded."""
    turn.change(sync_set=False)
    for pending in turn.state.unsaved:
        if turn.state.is_whole(pending):
            turn.set_pending(structs.replace(pending, due=True))


def advance(turn: Turn) -> None:
    """Upload checkpoints that are complete and due, and commit in the order of the reports."""
    if not turn.state.has_unsaved:
        return
    files = turn.state.spec.files
    if files.are_uploaded:
        _gather(turn)
        _skip_superseded(turn)
        if turn.state.durable.cut_off:
            return
        _upload(turn)
    pending = next(iter(turn.state.unsaved), None)
    if pending is None or pending.committing or not turn.state.is_whole(pending):
        return
    if files.are_uploaded and not pending.is_uploaded:
        return
    turn.set_pending(structs.replace(pending, committing=True))
    turn.do(do.Commit(*_what(pending)))
    if not pending.gathered:
        turn.do(do.CancelTimer(timers.missing(pending.index)))


def _what(pending: Pending) -> tuple[int, int, str, int, int, tuple[int, ...], bool]:
    where = (pending.attempt_number, pending.index, pending.id, pending.report)
    return *where, pending.world_size, tuple(pending.staged), pending.validate


def _gather(turn: Turn) -> None:
    for pending in turn.state.unsaved:
        if not pending.gathered and turn.state.is_whole(pending):
            turn.set_pending(structs.replace(pending, gathered=True))
            turn.do(do.Gather(*_what(pending)), do.CancelTimer(timers.missing(pending.index)))


def _skip_superseded(turn: Turn) -> None:
    """Storage lags behind: a checkpoint that newer ones would replace immediately is not uploaded."""
    state = turn.state
    if state.spec.num_to_keep is None or state.spec.scored:
        return
    whole = [p for p in state.unsaved if state.is_whole(p)]
    for pending in whole[: -max(1, state.spec.num_to_keep)]:
        if not (pending.uploading or pending.due or pending.validate or pending.id == state.durable.resume):
            turn.drop_pending(pending)
            turn.do(do.Discard(pending.attempt_number, pending.index))


def _upload(turn: Turn) -> None:
    for pending in turn.state.unsaved:
        if pending.refused:
            turn.set_pending(structs.replace(pending, refused=RankSet()))
            turn.do(do.Upload(pending.attempt_number, pending.index, pending.id, tuple(pending.refused)))
    state = turn.state
    whole = [p for p in state.unsaved if state.is_whole(p)]
    waiting = [p for p in whole if not p.uploading]
    hurry = state.spec.sync_period_s <= 0 or not state.attempt_lives
    last_due = max((p.report for p in waiting if p.due), default=0)
    # An uploaded checkpoint that waits for an older one does not count, because the older one may be hashed last.
    free = _UPLOADS_AT_ONCE - sum(p.uploading and not p.is_uploaded for p in whole)
    for pending in waiting[: max(0, free)]:
        if hurry or pending.report <= last_due:
            turn.set_pending(structs.replace(pending, uploading=True))
            where = (pending.attempt_number, pending.index, pending.id)
            turn.do(do.Upload(*where, tuple(pending.staged)))
    if waiting and not hurry and not state.sync_set:
        turn.change(sync_set=True)
        turn.do(do.SetTimer(timers.SYNC, state.spec.sync_period_s))


def committed(turn: Turn, event: ev.Committed) -> str:
    known, record = turn.state.durable, event.record
    if _is_known(known, record):
        return "known already"
    checkpoints = (*known.checkpoints, record)
    if known.newest is not None and known.newest.report > record.report:
        checkpoints = tuple(sorted(checkpoints, key=lambda c: c.report))
    turn.record(checkpoints=checkpoints, damaged=known.damaged - {record.id})
    if event.index >= 0:
        turn.record(streak=0)
        pending = turn.find_pending(event.attempt_number, event.index)
        if pending is not None:
            turn.drop_pending(pending)
    if record.validation is ValidationStatus.PENDING and event.index >= 0:  # else DriverStarted, next, asks for it
        turn.do(do.Validate(record.id))
    retire(turn)
    return f"{record.id} is durable"


def _is_known(durable: Durable, record: CheckpointRecord) -> bool:
    """They are sorted by report, so only the newest are searched: the replay of a long journal stays linear."""
    for checkpoint in reversed(durable.checkpoints):
        if checkpoint.id == record.id or checkpoint.report < record.report:
            return checkpoint.id == record.id
    return False


def retire(turn: Turn) -> None:
    """Delete checkpoints that retention does not keep. Workers may read the one that they resumed from until the run
    has ended."""
    known = turn.state.durable
    pinned = {known.resume} if known.resume and known.outcome is None else set()
    gone = superseded(known.checkpoints, known.spec, pinned)
    if gone:
        turn.record(checkpoints=tuple(c for c in known.checkpoints if c.id not in gone))
        turn.do(*(do.Delete(id) for id in gone))


def validated(turn: Turn, event: ev.Validated) -> str:
    def updated(record: CheckpointRecord) -> CheckpointRecord:
        score = record.score if event.score is None else event.score
        return structs.replace(record, validation=event.status, score=score)

    turn.record(checkpoints=tuple(updated(c) if c.id == event.id else c for c in turn.state.checkpoints))
    retire(turn)
    return f"validation of {event.id}: {event.status.value}"
