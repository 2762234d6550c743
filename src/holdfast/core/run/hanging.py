"""Ranks that make no progress. They are found by a timeout or by the run's own pace; their stacks are saved, and only
then is one of them blamed."""

from __future__ import annotations

from holdfast.core.failures import Evidence
from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import failing, timers
from holdfast.core.run.state import Phase, RankStatus, RunState
from holdfast.core.run.turn import Turn

_STACKS_WITHIN_S = 3.0
_LEARNT_FROM = 3  # reports of every rank before the pace of the run is known
_LEARNT_FACTOR = 10.0  # the learnt limit: this many times the longest pause between two reports
_LEAST_LEARNT_S = 60.0


def watch(turn: Turn) -> None:
    """From when all ranks are training."""
    if turn.state.spec.hang_timeout_s > 0 or turn.state.spec.learns_hangs:
        turn.do(do.SetTimer(timers.HANG, turn.state.spec.hang_timeout_s or _LEAST_LEARNT_S))


def time_out_start(turn: Turn) -> None:
    _suspect(turn, next(r for r, rank in enumerate(turn.state.ranks) if rank.status is RankStatus.STARTING))


def look(turn: Turn) -> None:
    limit, (slowest, idle) = _hang_limit(turn.state), _slowest(turn)
    if limit and idle >= limit:
        _suspect(turn, slowest)
    else:
        turn.do(do.SetTimer(timers.HANG, limit - idle if limit else _LEAST_LEARNT_S))


def _hang_limit(state: RunState) -> float:
    """When every rank has made some reports, their pace shows which pause is long for this run."""
    if state.spec.hang_timeout_s > 0 or not state.spec.learns_hangs:
        return state.spec.hang_timeout_s
    known = all(
        rank.reports >= _LEARNT_FROM or rank.silent or rank.status is RankStatus.RETURNED for rank in state.ranks
    )
    return max(_LEAST_LEARNT_S, _LEARNT_FACTOR * state.longest_gap) if known else 0.0


def _slowest(turn: Turn) -> tuple[int, float]:
    """The rank that has made no report for longest, and for how long. Waiting for storage is not a hang, and neither is
    waiting where the attempt is handed over. A rank that never reports moves with rank 0."""
    state = turn.state
    waiting = {rank for pending in state.pending.values() for rank in pending.awaited_by}
    if state.handover is not None and state.handover.index is not None:
        waiting.update(r for i, pending in state.pending.items() if i >= state.handover.index for r in pending.staged)
    shown_by = {r: 0 if k.silent else r for r, k in enumerate(state.ranks) if k.status is RankStatus.RUNNING}
    running = [rank for rank, by in shown_by.items() if by not in waiting]
    slowest = min(running, key=lambda r: state.ranks[shown_by[r]].seen, default=0)
    return slowest, 0.0 if state.stalled or not running else turn.now - state.ranks[shown_by[slowest]].seen


def _suspect(turn: Turn, rank: int) -> None:
    """Before the attempt is ended, the stacks of its ranks are saved: which rank hangs, and where."""
    if turn.state.attempt is not None and turn.state.attempt.suspect is None:
        turn.change_attempt(suspect=rank)
        turn.do(do.DumpStacks(turn.state.attempt_number), do.SetTimer(timers.STACKS, _STACKS_WITHIN_S))


def stacks_taken(turn: Turn, event: ev.StacksTaken) -> str:
    if event.attempt_number != turn.state.attempt_number:
        return "an attempt that is gone"
    condemn(turn, event.rank)
    return "what the ranks are doing is known"


def condemn(turn: Turn, cause: int) -> None:
    """End the attempt, unless the suspect has moved on meanwhile."""
    state, suspect = turn.state, turn.state.attempt.suspect if turn.state.attempt is not None else None
    if suspect is None or not state.attempt_lives:
        return
    turn.change_attempt(suspect=None)
    turn.do(do.CancelTimer(timers.STACKS))
    if state.phase is Phase.STARTING:
        message = "it did not enter its train function"
        limit, rank = state.spec.start_timeout_s, suspect if cause < 0 else cause
        failing.declare(turn, rank, Evidence(stalled_s=limit, started=False, message=message))
        return
    limit, (slowest, idle) = _hang_limit(state), _slowest(turn)
    if idle >= limit:
        failing.declare(turn, slowest if cause < 0 else cause, Evidence(stalled_s=idle))
    else:
        turn.do(do.SetTimer(timers.HANG, limit - idle))


def worker_stopped(turn: Turn, event: ev.WorkerStopped) -> str:
    if not turn.is_present(event):
        return "a process that is gone"
    turn.set_rank(event.rank, stopped=event.stopped)
    timer, grace = timers.stopped(event.rank), turn.state.spec.stopped_grace_s
    if grace > 0:
        turn.do(do.SetTimer(timer, grace) if event.stopped else do.CancelTimer(timer))
    return f"rank {event.rank} was {'stopped' if event.stopped else 'continued'} by a signal"


def stopped_for_long(turn: Turn, rank: int) -> None:
    ranks = turn.state.ranks
    if turn.state.attempt_lives and rank < len(ranks) and ranks[rank].stopped:
        message = "its process was stopped by a signal"
        failing.declare(turn, rank, Evidence(stalled_s=turn.state.spec.stopped_grace_s, message=message))
