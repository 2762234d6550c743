"""Standby workers: processes that have run the script up to the point where a replacement joins its peers, and wait
there for a rank. They are started when every rank can continue with a replacement, and in the background after one was
used or lost. A run never depends on them: without a standby, a process is started for the lost rank.
"""

from __future__ import annotations

from msgspec import structs

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import timers
from holdfast.core.run.state import Attempt, Phase, RankStatus, RunState, Standby
from holdfast.core.run.turn import Turn

_MOST_LOST = 3  # losses in a row, before a standby was ready
_WAIT_S = 1.0  # before a lost standby is replaced; doubled each time


def chosen(attempt: Attempt, node: str) -> int:
    """The number of the standby that takes the place of a rank lost on this node; 0 if there is none."""
    here = (number for number, one in attempt.standbys.items() if one.is_free and one.node == node and one.moves < 0)
    return next(here, 0)


def take(turn: Turn, number: int, rank: int) -> None:
    attempt = turn.state.attempt
    assert attempt is not None
    if number in attempt.standbys:
        taken = structs.replace(attempt.standbys[number], rank=rank)
        turn.change_attempt(standbys={**attempt.standbys, number: taken})


def fill(turn: Turn) -> None:
    """Start as many as are missing, if a rank that is lost now would be replaced."""
    attempt = turn.state.attempt
    if attempt is None or attempt.standbys_rest or attempt.standbys_lost >= _MOST_LOST:
        return
    if _are_useful(turn.state, attempt):
        _start_missing(turn, attempt)


def wait_is_over(turn: Turn) -> None:
    """While ranks are being replaced none is started: the last of them to be ready starts it."""
    if turn.state.attempt is not None:
        turn.change_attempt(standbys_rest=False)
        fill(turn)


def _are_useful(state: RunState, attempt: Attempt) -> bool:
    if not state.spec.standby_workers or state.phase is not Phase.RUNNING or not state.durable.is_undecided:
        return False
    if attempt.regroup is not None or attempt.handover is not None or attempt.ranks.has(RankStatus.RETURNED):
        return False
    return all(rank.armed for rank in attempt.ranks)


def _start_missing(turn: Turn, attempt: Attempt) -> None:
    missing = turn.state.spec.standby_workers - sum(one.moves < 0 for one in attempt.standbys.values())
    first = attempt.standbys_started + 1
    numbers = range(first, first + max(0, missing))
    turn.change_attempt(
        standbys={**attempt.standbys, **{number: Standby() for number in numbers}},
        standbys_started=attempt.standbys_started + len(numbers),
    )
    turn.do(*(do.StartStandby(turn.state.attempt_number, number) for number in numbers))


def ready(turn: Turn, event: ev.StandbyReady) -> str:
    attempt = turn.state.attempt
    if attempt is None or not turn.is_current(event.attempt_number) or event.number not in attempt.standbys:
        return "an attempt that is gone"
    known = structs.replace(attempt.standbys[event.number], node=event.node, ready=True)
    turn.change_attempt(standbys={**attempt.standbys, event.number: known}, standbys_lost=0)
    return f"standby {event.number} waits on {event.node}"


def lost(turn: Turn, event: ev.StandbyLost) -> str:
    """A standby that was to take a rank exited before it heard of that. Another process replaces the rank."""
    attempt = turn.state.attempt
    if attempt is None or not turn.is_current(event.attempt_number) or event.number not in attempt.standbys:
        return "an attempt that is gone"
    one = attempt.standbys[event.number]
    count = attempt.standbys_lost + 1
    rest = {number: other for number, other in attempt.standbys.items() if number != event.number}
    turn.change_attempt(standbys=rest, standbys_lost=count)
    if not turn.state.attempt_lives:
        return f"standby {event.number} ended"
    if one.moves >= 0 and one.rank < 0:
        turn.do(do.SetTimer(timers.MOVE, 0.0))  # it cannot move: the checkpoint is the way
        return f"standby {event.number}, for rank {one.moves}, was lost: {event.why}"
    if one.rank >= 0 and attempt.regroup is not None and one.rank in attempt.regroup.lost:
        _replace_again(turn, one)
    if count >= _MOST_LOST:
        turn.do(do.Warn(f"no other standby worker is started: {count} in a row were lost, the last one: {event.why}"))
    else:
        turn.change_attempt(standbys_rest=True)
        turn.do(do.SetTimer(timers.STANDBY, _WAIT_S * 2.0 ** (count - 1)))
    return f"standby {event.number} was lost: {event.why}"


def _replace_again(turn: Turn, one: Standby) -> None:
    attempt = turn.state.attempt
    assert attempt is not None
    assert attempt.regroup is not None
    if attempt.handover is not None:  # a new process would not know where all ranks stop
        why = f"the standby worker that took rank {one.rank} was lost"
        turn.do(do.Decide(ev.RegroupFailed(turn.state.attempt_number, why)))
        return
    other = chosen(attempt, one.node)
    turn.give_rank(one.rank, attempt.regroup.number)  # it is higher if another rank was lost meanwhile
    if other:
        take(turn, other, one.rank)
    turn.do(do.ReplaceRank(turn.state.attempt_number, one.rank, attempt.regroup.number, other))


def forget_taken(turn: Turn) -> None:
    """All ranks are one group again: a standby that was taken is a rank now."""
    attempt = turn.state.attempt
    assert attempt is not None
    turn.change_attempt(standbys={number: one for number, one in attempt.standbys.items() if one.rank < 0})


def warn_if_unused(turn: Turn) -> None:
    if turn.state.spec.standby_workers and not any(rank.armed for rank in turn.state.ranks):
        turn.do(
            do.Warn(
                "ScalingConfig(standby_workers) had no effect: no training step was recoverable. Decorate the step "
                "with TrainState.recoverable."
            )
        )
