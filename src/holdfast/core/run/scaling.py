"""How large attempts are, and their planned ends: for more workers, before nodes are preempted, on request.

An attempt is handed over at a checkpoint. Its workers are told first; when all know, a report index is chosen that none
of them has passed, and a rank that saves files from there on waits. So all ranks end at the same place, and lose no
step.
"""

from __future__ import annotations

from msgspec import structs

from holdfast.core.failures import Evidence
from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import failing, timers
from holdfast.core.run.phases import end_attempt, stops_soon
from holdfast.core.run.state import Handover, HandoverReason, Phase, RankStatus, Verdict
from holdfast.core.run.turn import Turn

_BEFORE_DEADLINE_S = 1.0  # a node may be removed a little before its deadline


def consider_resize(turn: Turn) -> None:
    """Request the end of an attempt that could be larger, but not sooner than the interval after its start. The work of
    a rank that has returned would be repeated, so then the attempt is left to finish."""
    state, attempt = turn.state, turn.state.attempt
    if attempt is None or state.phase is not Phase.RUNNING or attempt.handover is not None:
        return
    wanted = state.world_size
    grows = wanted is not None and wanted > len(attempt.ranks)
    if not grows or attempt.ranks.has(RankStatus.RETURNED):
        return
    left = attempt.started + state.spec.resize_interval_s - turn.now
    if left > 0:
        turn.do(do.SetTimer(timers.RESIZE, left))
    else:
        ask(turn, Handover(HandoverReason.RESIZE), None)


def node_drains(turn: Turn, event: ev.NodeDrains) -> str:
    state = turn.state
    if not event.ranks or not state.attempt_lives:
        return f"{event.node} will go, and is not in use"
    known = state.handover
    if known is not None and known.reason is HandoverReason.STOP:
        return f"{event.node} will go, and the run stops anyway"
    nodes: tuple[str, ...] = (event.node,)
    ranks, due = event.ranks, turn.now + event.deadline_s
    if known is not None and known.reason is HandoverReason.PREEMPTION:
        nodes, ranks = (*known.nodes, *nodes), (*known.ranks, *ranks)
        due = due if known.due is None else min(due, known.due)
    ask(turn, Handover(HandoverReason.PREEMPTION, nodes, ranks, due=due), due - turn.now)
    return f"{event.node} will go in {event.deadline_s:.0f} s"


def ask(turn: Turn, handover: Handover, deadline_s: float | None) -> None:
    """An earlier point no longer counts: ranks that wait there continue to the next one."""
    number = 1 if turn.state.handover is None else turn.state.handover.number + 1
    turn.change_attempt(handover=structs.replace(handover, number=number))
    asked = do.AskHandover(turn.state.attempt_number, handover.reason, handover.nodes, deadline_s, number)
    turn.do(asked, do.CancelTimer(timers.RESIZE))
    if deadline_s is not None:
        turn.do(do.SetTimer(timers.HANDOVER, max(0.0, deadline_s - _BEFORE_DEADLINE_S)))


def handover_set(turn: Turn, event: ev.HandoverSet) -> str:
    handover = turn.state.handover
    if handover is None or (event.attempt_number, event.number) != (turn.state.attempt_number, handover.number):
        return "that is no longer needed"
    turn.change_attempt(handover=structs.replace(handover, index=event.index))
    return f"the attempt ends with its first checkpoint from report {turn.state.base + event.index + 1} on"


def hand_over(turn: Turn) -> None:
    """Called when the checkpoint at which all ranks wait is complete."""
    state = turn.state
    handover = state.handover
    if handover is None or handover.index is None or not state.attempt_lives:
        return
    if any(p.index >= handover.index and state.is_whole(p) for p in state.pending.values()):
        turn.do(do.Decide(ev.HandedOver(state.attempt_number, handover.reason)))


def handed_over(turn: Turn, event: ev.HandedOver) -> str:
    if event.attempt_number != turn.state.attempt_number or not turn.state.attempt_lives:
        return "that attempt is gone"
    verdict = Verdict.STOP if event.reason is HandoverReason.STOP or stops_soon(turn.state) else Verdict.RETRY
    turn.record(verdict=verdict)
    end_attempt(turn, "handed over", graceful=False)
    return f"attempt {event.attempt_number} hands over: {event.reason.value}"


def time_out_handover(turn: Turn) -> None:
    handover = turn.state.handover
    if handover is None or not turn.state.attempt_lives:
        return
    if handover.reason is HandoverReason.STOP:
        end_attempt(turn, "stop asked", graceful=True)
    elif handover.reason is HandoverReason.PREEMPTION:
        message = "its node was preempted before a checkpoint finished"
        evidence = Evidence(preempted=True, message=message)
        failing.declare(turn, next(iter(handover.ranks), 0), evidence)
