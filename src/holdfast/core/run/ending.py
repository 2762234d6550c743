"""The end of an attempt and of the run: what must be durable before it, and what follows."""

from __future__ import annotations

from holdfast.core.run import checkpointing, scaling, starting
from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run.phases import end_attempt, end_run, move, stops_soon
from holdfast.core.run.state import Handover, HandoverReason, Outcome, Phase, ValidationStatus, Verdict
from holdfast.core.run.turn import Turn


def stop_asked(turn: Turn, event: ev.StopAsked) -> str:
    state = turn.state
    if state.phase is Phase.ENDED:
        return "the run has ended already"
    turn.record(charge=None)
    if event.at_once:
        end_run(turn, Outcome.STOPPED, "it was asked to stop immediately")
        return "an immediate stop was asked for"
    if state.verdict is not Verdict.FAIL:
        turn.record(verdict=Verdict.STOP)
    if state.phase is Phase.RUNNING and event.grace_s > 0 and not stops_soon(state):
        scaling.ask(turn, Handover(HandoverReason.STOP), event.grace_s)
    elif state.attempt_lives:
        end_attempt(turn, "stop asked", graceful=True)
    return "a stop was asked for"


def settle(turn: Turn) -> None:
    """When the attempt has ended and all its complete checkpoints are durable, continue with what follows. If
    storage is remote, the next attempt does not wait for that: it starts from the files on its nodes. The end of the
    run waits."""
    phase = turn.state.phase
    stops = (phase is Phase.RESTORING or phase is Phase.WAITING) and turn.state.verdict is Verdict.STOP
    if phase is not Phase.SETTLING and not stops:
        return
    if turn.state.verdict is Verdict.RETRY:
        checkpointing.carry(turn)
    state = turn.state
    lost = state.attempt.missed if state.attempt is not None else None
    on_the_nodes = state.verdict is Verdict.RETRY or state.durable.cut_off
    to_do = [p for p in state.unsaved if not p.is_sealed] if on_the_nodes else state.unsaved
    if to_do or (state.pending and not state.durable.cut_off):
        return
    if state.verdict is Verdict.RETRY:
        move(turn, "retry")
        turn.change(attempt=None)
        starting.restore(turn)
    elif state.verdict is Verdict.FAIL:
        assert state.failure is not None
        end_run(turn, Outcome.FAILED, state.failure.text)
    elif state.verdict is Verdict.STOP:
        end_run(turn, Outcome.STOPPED, "it was asked to stop")
    elif lost is not None and lost.report > (state.newest.report if state.newest else 0):
        turn.do(do.Decide(ev.CommitFailed(lost.attempt_number, lost.index, f"{lost.id}, the last one, was lost")))
    elif not any(c.validation is ValidationStatus.PENDING for c in state.checkpoints):
        end_run(turn, Outcome.FINISHED, "every rank returned")


def run_ended(turn: Turn, event: ev.RunEnded) -> str:
    turn.record(outcome=event.outcome)
    if event.attempt_gone:
        turn.record(leases={})
    turn.jump(Phase.ENDED)
    checkpointing.retire(turn)
    turn.do(do.Finish(event.outcome, event.reason))
    return f"the run {event.outcome.value}: {event.reason}"
