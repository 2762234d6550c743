"""From a driver's start, or an attempt's end, to the next attempt: what it resumes from, when, and on which nodes."""

from __future__ import annotations

from holdfast.core.run import checkpointing, failing, memory, scaling, timers
from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run.phases import end_run, is_over, move
from holdfast.core.run.state import Durable, Outcome, Phase, RunState, ValidationStatus, Verdict
from holdfast.core.run.turn import Turn


def driver_started(turn: Turn, event: ev.DriverStarted) -> str:
    was = turn.state.durable
    if was.outcome in (Outcome.FINISHED, Outcome.FAILED):  # a person has started it again
        turn.record(spent={}, streak=0, same_error=("", -1, 0))
    turn.record(
        spec=event.spec, epoch=event.epoch, attempt_size=0, resume=None, cut_off=False, outcome=None, charge=None
    )
    turn.state = RunState(turn.state.durable, capacity=turn.state.capacity)
    _doubt(turn, event)
    for node in sorted(was.resting):
        turn.do(do.Rest(node, on=True), do.SetTimer(timers.rest(node), event.spec.bad_node_rest_s))
    turn.jump(Phase.RESTORING)
    failure = was.failure if was.verdict is Verdict.FAIL else None
    if failure is not None and failing.is_final(turn.state.durable, failure.kind):
        end_run(turn, Outcome.FAILED, failure.text)
        return "an earlier driver died before it could say that the run had failed"
    turn.record(failure=None, verdict=None)
    if event.stops:
        return "a driver took the run over, and is to stop"
    turn.do(*(do.Validate(c.id) for c in was.checkpoints if c.validation is ValidationStatus.PENDING))
    restore(turn)
    return "a driver took the run over" if was.epoch > 0 else "the run begins"


def _doubt(turn: Turn, event: ev.DriverStarted) -> None:
    doubted = in_doubt_s(turn.state.durable, event)
    turn.change(doubted=frozenset(doubted))
    if doubted:
        turn.do(do.SetTimer(timers.DOUBT, max(doubted.values())))


def in_doubt_s(durable: Durable, event: ev.DriverStarted) -> dict[str, float]:
    """A node of the last attempt may be cut off and not know that its driver died. Its workers exit when its lease
    expires; no other attempt may start before that."""
    left = {node: lease - event.waited_s for node, lease in durable.leases.items() if node not in event.clear}
    return {node: seconds for node, seconds in left.items() if seconds > 0}


def node_clear(turn: Turn, event: ev.NodeClear) -> str:
    doubt_is_over(turn, frozenset({event.node}))
    return f"nothing of an earlier attempt lives on {event.node}"


def doubt_is_over(turn: Turn, nodes: frozenset[str]) -> None:
    if not nodes & turn.state.doubted:
        return
    turn.change(doubted=turn.state.doubted - nodes)
    if not turn.state.doubted:
        turn.do(do.CancelTimer(timers.DOUBT))
        if turn.state.phase is Phase.WAITING:
            start(turn)


def restore(turn: Turn) -> None:
    turn.change(verified=None, recalled=None)
    if memory.recall(turn):
        return
    if turn.state.offer_to_verify is not None:
        turn.do(do.Verify(turn.state.offer_to_verify))
    elif turn.state.offer is None and turn.state.phase is Phase.RESTORING:
        _proceed(turn)


def reconsider(turn: Turn, was: RunState) -> None:
    """The checkpoint for the next attempt may be lost, or be uploaded, before that attempt starts."""
    if was.phase is not Phase.RESTORING and was.phase is not Phase.WAITING:
        return
    if turn.state.phase is not was.phase or is_over(turn.state):
        return
    lost = turn.state.offer is None and was.offer is not None
    changed = turn.state.offer_to_verify != was.offer_to_verify
    if turn.state.memory is not None or was.memory is not None:  # which other checkpoint is below it does not matter
        changed = (turn.state.memory, turn.state.world_size) != (was.memory, was.world_size)
    if lost or changed:
        restore(turn)


def verified(turn: Turn, event: ev.Verified) -> str:
    if turn.state.phase not in (Phase.RESTORING, Phase.WAITING) or turn.state.offer_to_verify != event.id:
        return "that verification is no longer needed"
    turn.change(verified=event.id)
    if turn.state.phase is Phase.RESTORING and turn.state.memory is None:
        _proceed(turn)
    return f"{event.id} is intact"


def recalled(turn: Turn, event: ev.Recalled) -> str:
    if not memory.recalled(turn, event):
        return "that snapshot is no longer needed"
    if turn.state.phase is Phase.RESTORING:
        _proceed(turn)
    return f"step {event.step} is in memory where it is needed"


def damaged(turn: Turn, event: ev.Damaged) -> str:
    rest = tuple(c for c in turn.state.checkpoints if c.id != event.id)
    if len(rest) == len(turn.state.checkpoints):
        return "already set aside"
    turn.record(checkpoints=rest, damaged=turn.state.durable.damaged | {event.id})
    turn.do(do.Quarantine(event.id, event.why), do.Warn(f"{event.id} is damaged and was set aside: {event.why}"))
    return f"{event.id} is damaged"


def adopted(turn: Turn, event: ev.Adopted) -> str:
    before = tuple(c for c in turn.state.checkpoints if c.report < event.record.report)
    turn.record(checkpoints=(*before, event.record), streak=0)
    return f"the run resumes from {event.record.id}, which another run made"


def staged_lost(turn: Turn, event: ev.StagedLost) -> str:
    state = turn.state
    waits = state.phase in (Phase.RESTORING, Phase.WAITING)
    if waits and state.newest is not None and state.newest.id == event.id == state.offer_to_verify:
        restore(turn)
        return f"{event.id} is in storage"
    return checkpointing.staged_lost(turn, event)


def _proceed(turn: Turn) -> None:
    delay = 0.0 if memory.has_progressed(turn.state) else backoff_s(turn.state.durable)
    if delay > 0:
        move(turn, "back off")
        turn.do(do.SetTimer(timers.BACKOFF, delay))
    else:
        start(turn)


def backoff_s(durable: Durable) -> float:
    """How long a retry waits: not at all after progress, then ever longer until something new is committed."""
    if durable.streak <= 1 or durable.verdict is not Verdict.RETRY:
        return 0.0
    return min(durable.spec.max_backoff_s, durable.spec.backoff_s * 2.0 ** min(durable.streak - 2, 32))


def start(turn: Turn) -> None:
    state, offer = turn.state, turn.state.offer
    if is_over(state):
        return
    unverified = state.memory != state.recalled if state.memory else offer is not None and offer.id != state.verified
    if unverified:
        turn.do(do.SetTimer(timers.BACKOFF, state.spec.backoff_s))
        return
    if state.doubted:
        _wait_for_nodes(turn)
        return
    if state.world_size is None:
        _wait_for_capacity(turn)
        return
    turn.do(do.Decide(memory.next_attempt(state, state.attempt_number + 1, state.world_size)))


def _wait_for_nodes(turn: Turn) -> None:
    if turn.state.phase is Phase.RESTORING:
        move(turn, "nodes in doubt")
        nodes = ", ".join(sorted(place.partition("@")[0] for place in turn.state.doubted))
        turn.do(do.Warn(f"waiting until no worker of the last attempt can be left on {nodes}, which did not come back"))


def _wait_for_capacity(turn: Turn) -> None:
    if turn.state.phase is Phase.RESTORING:
        move(turn, "no capacity")
    if not turn.state.lacking:
        least, room = turn.state.spec.min_workers or turn.state.spec.num_workers, turn.state.capacity or 0
        turn.do(do.Decide(ev.CapacityLacking(least, room)))


def capacity_lacking(turn: Turn, event: ev.CapacityLacking) -> str:
    turn.record(leases={})  # this is decided when no worker lives
    turn.change(lacking=True)
    text = f"waiting for nodes: {event.least} workers are needed, and {event.room} fit now"
    turn.do(do.Warn(text))
    return text


def capacity(turn: Turn, event: ev.Capacity) -> str:
    turn.change(capacity=event.slots)
    if turn.state.phase is Phase.WAITING and turn.state.lacking:
        start(turn)
    scaling.consider_resize(turn)
    return f"{event.slots} workers fit"
