"""The phases of a run and the events that lead from one to the next. The state diagram in the docs is drawn from
TRANSITIONS."""

from __future__ import annotations

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import timers
from holdfast.core.run.state import Outcome, Phase, RunState, Verdict
from holdfast.core.run.turn import Turn

TRANSITIONS: dict[tuple[Phase, str], Phase] = {
    (Phase.IDLE, "driver started"): Phase.RESTORING,
    (Phase.RESTORING, "back off"): Phase.WAITING,
    (Phase.RESTORING, "no capacity"): Phase.WAITING,
    (Phase.RESTORING, "nodes in doubt"): Phase.WAITING,
    (Phase.RESTORING, "attempt started"): Phase.STARTING,
    (Phase.WAITING, "attempt started"): Phase.STARTING,
    (Phase.STARTING, "all ready"): Phase.RUNNING,
    (Phase.STARTING, "failure"): Phase.STOPPING,
    (Phase.RUNNING, "failure"): Phase.STOPPING,
    (Phase.STARTING, "handed over"): Phase.STOPPING,
    (Phase.RUNNING, "handed over"): Phase.STOPPING,
    (Phase.STARTING, "stop asked"): Phase.STOPPING,
    (Phase.RUNNING, "stop asked"): Phase.STOPPING,
    (Phase.RUNNING, "all returned"): Phase.STOPPING,
    (Phase.STOPPING, "attempt gone"): Phase.SETTLING,
    (Phase.SETTLING, "retry"): Phase.RESTORING,
    (Phase.SETTLING, "run ended"): Phase.ENDED,
    (Phase.RESTORING, "run ended"): Phase.ENDED,
    (Phase.WAITING, "run ended"): Phase.ENDED,
}


def move(turn: Turn, trigger: str) -> None:
    turn.change(phase=TRANSITIONS[turn.state.phase, trigger])


def is_over(state: RunState) -> bool:
    """Whether no other attempt follows."""
    return state.verdict in (Verdict.STOP, Verdict.FAIL)


def stops_soon(state: RunState) -> bool:
    return state.verdict is Verdict.STOP


def end_attempt(turn: Turn, trigger: str, graceful: bool) -> None:
    move(turn, trigger)
    turn.change_attempt(handover=None, suspect=None, regroup=None, move=None)
    turn.do(do.StopAttempt(turn.state.attempt_number, graceful))
    stopped = (timers.stopped(rank) for rank, known in enumerate(turn.state.ranks) if known.stopped)
    watches = (
        timers.START,
        timers.HANG,
        timers.STACKS,
        timers.HANDOVER,
        timers.RESIZE,
        timers.REGROUP,
        timers.STANDBY,
        timers.MOVE,
    )
    turn.do(*(do.CancelTimer(timer) for timer in (*watches, *stopped)))


def end_run(turn: Turn, outcome: Outcome, reason: str) -> None:
    may_live = (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)
    attempt_gone = turn.state.phase not in may_live and not turn.state.doubted
    turn.do(do.Decide(ev.RunEnded(outcome, reason, attempt_gone)))
