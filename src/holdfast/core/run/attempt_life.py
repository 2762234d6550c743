"""Events of the workers of the current attempt, from its start until all its processes have exited."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.core.run import checkpointing, hanging, memory, regrouping, scaling, standby, timers
from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run.phases import end_attempt, move
from holdfast.core.run.ranks import in_words
from holdfast.core.run.state import Attempt, Phase, Rank, Ranks, RankStatus
from holdfast.core.run.turn import Turn


def started(turn: Turn, event: ev.AttemptStarted) -> str:
    known = {"attempt_number": event.attempt_number, "resume": event.resume, "base": event.base}
    leases = dict.fromkeys(event.leased, turn.state.spec.lease_s)
    turn.record(**known, attempt_size=event.world_size, leases=leases, verdict=None, failure=None, charge=None)
    attempt = Attempt(_new_ranks(turn, event.world_size), started=turn.now)
    turn.change(attempt=attempt, lacking=False, doubted=frozenset())
    memory.attempt_started(turn, event)
    turn.jump(Phase.STARTING)
    where = (event.attempt_number, event.world_size, event.resume, event.base, event.leased)
    turn.do(do.StartAttempt(*where, event.snapshot))
    turn.do(do.SetTimer(timers.START, turn.state.spec.start_timeout_s))
    checkpointing.retire(turn)  # what the previous attempt resumed from
    return f"attempt {event.attempt_number} of {event.world_size} starts from {event.resume or 'the beginning'}"


def _new_ranks(turn: Turn, count: int) -> Ranks:
    rank = Rank(seen=turn.now)
    if not turn.state.spec.rank_zero_only:
        return Ranks.alike(rank, count)
    return Ranks([rank, *[replace(rank, silent=True)] * (count - 1)])


def worker_ready(turn: Turn, event: ev.WorkerReady) -> str:
    if not turn.is_present(event) or turn.state.ranks[event.rank].status is not RankStatus.STARTING:
        return "no news"
    turn.set_rank(event.rank, status=RankStatus.RUNNING, seen=turn.now)
    if turn.state.phase is Phase.STARTING and not turn.state.ranks.has(RankStatus.STARTING):
        move(turn, "all ready")
        turn.change_attempt(suspect=None)
        turn.do(do.CancelTimer(timers.START), do.CancelTimer(timers.STACKS))
        hanging.watch(turn)
        scaling.consider_resize(turn)
        _leave_if_all_returned(turn)
    return f"rank {event.rank} is training"


def progressed(turn: Turn, event: ev.Progressed) -> str:
    if not turn.is_current(event.attempt_number):
        return "an attempt that is gone"
    turn.saw_reports(event.rank, event.reports)
    return f"rank {event.rank} has made {event.reports} reports"


def worker_returned(turn: Turn, event: ev.WorkerReturned) -> str:
    if not turn.is_present(event):
        return "a process that is gone"
    turn.set_rank(event.rank, status=RankStatus.RETURNED, seen=turn.now)
    regrouping.rank_returned(turn, event.rank)
    _leave_if_all_returned(turn)
    return f"rank {event.rank} returned"


def _leave_if_all_returned(turn: Turn) -> None:
    if turn.state.phase is Phase.RUNNING and turn.state.ranks.have_all_returned:
        standby.warn_if_unused(turn)
        end_attempt(turn, "all returned", graceful=True)


def gone(turn: Turn, event: ev.AttemptGone) -> str:
    if event.attempt_number != turn.state.attempt_number or turn.state.phase is not Phase.STOPPING:
        return "no news"
    move(turn, "attempt gone")
    dead = (r if r.status is RankStatus.RETURNED else replace(r, status=RankStatus.DEAD) for r in turn.state.ranks)
    turn.change_attempt(ranks=Ranks(dead))
    for index in list(turn.state.pending):
        if not turn.state.complete(index):
            turn.do(do.Discard(event.attempt_number, index), do.CancelTimer(timers.missing(index)))
            turn.drop_pending(turn.state.pending[index])
    return f"attempt {event.attempt_number} is gone"


def warn_of_missing(turn: Turn, index: int) -> None:
    missing = turn.state.ranks.behind(index)
    if not missing:
        return
    pending = turn.state.pending[index]
    turn.do(
        do.Warn(
            f"{pending.id} is not saved yet: {_too_few_reports(turn, missing)}. Call it on every rank; a rank without "
            "files passes checkpoint=None." + (_IF_REPLICATED if list(pending.staged) == [0] else "")
        ),
        do.SetTimer(timers.missing(index), turn.state.spec.missing_warning_s),
    )


def _too_few_reports(turn: Turn, missing: list[int]) -> str:
    counts = {turn.state.ranks[rank].reports for rank in missing}
    most, only = max(counts), "only" if len(counts) == 1 else "at most"
    has = f"{in_words(missing)} {'has' if len(missing) == 1 else 'have'}"
    where = f" in attempt {turn.state.attempt_number}" if turn.state.attempt_number > 1 else ""
    if not most:
        return f"{has} not called train.report(){where}"
    return f"{has} called train.report() {only} {most} time{'' if most == 1 else 's'}{where}"


_IF_REPLICATED = (
    " If rank 0's checkpoint holds the whole state, as with DDP, report on rank 0 only and set "
    "RunConfig(checkpoint_config=CheckpointConfig(rank_zero_only=True)), or pass --rank-zero-only to holdfast run."
)
