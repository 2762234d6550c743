"""The run's machine: ``step(state, event, now) -> (state, commands, reason)``.

All that decides how a run goes on is in this file and, for its checkpoints, in checkpointing.py; the state diagram in
the docs is drawn from TRANSITIONS.
What must survive the driver changes only by durable events. A decision taken on volatile ones (a time-out, say) is
therefore itself an event: the machine asks for it with ``Decide``, and acts when it comes back, journalled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from . import checkpointing, scaling
from . import commands as do
from . import events as ev
from .failures import Evidence, FailureKind, classify, describe
from .state import (
    Failure,
    Handover,
    HandoverReason,
    Outcome,
    Phase,
    Rank,
    RankStatus,
    RunSpec,
    RunState,
    ValidationStatus,
    Verdict,
)
from .turn import Turn

TRANSITIONS: dict[tuple[Phase, str], Phase] = {
    (Phase.IDLE, "driver started"): Phase.RESTORING,
    (Phase.RESTORING, "back off"): Phase.WAITING,
    (Phase.RESTORING, "no capacity"): Phase.WAITING,
    (Phase.RESTORING, "group started"): Phase.STARTING,
    (Phase.WAITING, "group started"): Phase.STARTING,
    (Phase.STARTING, "all ready"): Phase.RUNNING,
    (Phase.STARTING, "failure"): Phase.STOPPING,
    (Phase.RUNNING, "failure"): Phase.STOPPING,
    (Phase.STARTING, "handed over"): Phase.STOPPING,
    (Phase.RUNNING, "handed over"): Phase.STOPPING,
    (Phase.STARTING, "stop asked"): Phase.STOPPING,
    (Phase.RUNNING, "stop asked"): Phase.STOPPING,
    (Phase.RUNNING, "all returned"): Phase.STOPPING,
    (Phase.STOPPING, "group gone"): Phase.SETTLING,
    (Phase.SETTLING, "retry"): Phase.RESTORING,
    (Phase.SETTLING, "run ended"): Phase.ENDED,
    (Phase.RESTORING, "run ended"): Phase.ENDED,
    (Phase.WAITING, "run ended"): Phase.ENDED,
}

_STACKS_WITHIN_S = 3.0
_LEARNT_FROM = 3  # reports of every rank, before a hang is judged by the run's own pace
_LEARNT_FACTOR = 10.0  # times the longest pause between two reports so far
_LEAST_LEARNT_S = 60.0

Step = tuple[RunState, list[do.Command], str]


def step(state: RunState, event: ev.Event, now: float) -> Step:
    """Take one event in; what to do comes out, with the reason in words."""
    turn = Turn(state, now)
    reason = _HANDLERS[type(event)](turn, event)
    scaling.hand_over(turn)
    checkpointing.advance(turn)
    _reconsider(turn, state)
    _settle(turn)
    return turn.state, turn.commands, reason


def replay(state: RunState, event: ev.Event) -> RunState:
    """Take a journalled event in again. Its commands were carried out, or died with the driver that had them."""
    state = step(state, event, 0.0)[0]
    if state.phase is not Phase.RESTORING:
        return state
    # Nobody restores any more: that driver is dead, and what the next one finds out before it begins must not go on.
    return structs.replace(state, phase=Phase.IDLE)


def _move(turn: Turn, trigger: str) -> None:
    turn.change(phase=TRANSITIONS[turn.state.phase, trigger])


def _driver_started(turn: Turn, event: ev.DriverStarted) -> str:
    was = turn.state
    if was.outcome in (Outcome.FINISHED, Outcome.FAILED):
        turn.change(
            spent={}, streak=0, same_error=("", -1, 0)
        )  # that run came to its verdict; this is a new attempt by a person
    turn.change(spec=event.spec, epoch=event.epoch, resume=None)
    turn.change(ranks=(), pending={}, carried=(), names=frozenset(), sync_set=False, stalled=False)
    turn.change(given_up=frozenset(), cut_off=False, outcome=None)
    turn.change(lacking=False, handover=None, suspect=None, longest_gap=0.0)
    for node in sorted(was.resting):
        turn.do(do.Rest(node, on=True), do.SetTimer(f"rest:{node}", event.spec.bad_node_rest_s))
    turn.jump(Phase.RESTORING)
    if was.verdict is Verdict.FAIL and was.failure is not None and _is_final(turn.state, was.failure.kind):
        _end(turn, Outcome.FAILED, was.failure.text)
        return "an earlier driver died before it could say that the run had failed"
    turn.change(failure=None, verdict=None)
    turn.do(*(do.Validate(c.id) for c in was.checkpoints if c.validation is ValidationStatus.PENDING))
    _restore(turn)
    return "a driver took the run over" if was.epoch > 0 else "the run begins"


def _restore(turn: Turn) -> None:
    turn.change(verified=None)
    if turn.state.offer_to_verify is not None:
        turn.do(do.Verify(turn.state.offer_to_verify))
    elif turn.state.offer is None and turn.state.phase is Phase.RESTORING:
        _proceed(turn)


def _reconsider(turn: Turn, was: RunState) -> None:
    """What the next group was to start from may be lost before that starts, or come to be in storage."""
    waits = turn.state.phase is was.phase and was.phase in (Phase.RESTORING, Phase.WAITING)
    lost = turn.state.offer is None and was.offer is not None
    if waits and not _is_over(turn.state) and (lost or turn.state.offer_to_verify != was.offer_to_verify):
        _restore(turn)


def _is_over(state: RunState) -> bool:
    """Whether no other group follows."""
    return state.verdict in (Verdict.STOP, Verdict.FAIL)


def _verified(turn: Turn, event: ev.Verified) -> str:
    if turn.state.phase not in (Phase.RESTORING, Phase.WAITING) or turn.state.offer_to_verify != event.id:
        return "nobody waits for that verification any more"
    turn.change(verified=event.id)
    if turn.state.phase is Phase.RESTORING:
        _proceed(turn)
    return f"{event.id} is intact"


def _damaged(turn: Turn, event: ev.Damaged) -> str:
    rest = tuple(c for c in turn.state.checkpoints if c.id != event.id)
    if len(rest) == len(turn.state.checkpoints):
        return "already set aside"
    turn.change(checkpoints=rest, damaged=turn.state.damaged | {event.id})
    turn.do(do.Quarantine(event.id, event.why), do.Warn(f"{event.id} is damaged and was set aside: {event.why}"))
    return f"{event.id} is damaged"


def _staged_lost(turn: Turn, event: ev.StagedLost) -> str:
    state = turn.state
    waits = state.phase in (Phase.RESTORING, Phase.WAITING)
    if waits and state.newest is not None and state.newest.id == event.id == state.offer_to_verify:
        _restore(turn)
        return f"{event.id} is in storage"
    return checkpointing.staged_lost(turn, event)


def _proceed(turn: Turn) -> None:
    delay = _backoff(turn.state) if turn.state.verdict is Verdict.RETRY else 0.0
    if delay > 0:
        _move(turn, "back off")
        turn.do(do.SetTimer("backoff", delay))
    else:
        _start(turn)


def _backoff(state: RunState) -> float:
    """At once after progress; then ever longer, as long as nothing new gets committed in between."""
    if state.streak <= 1:
        return 0.0
    return min(state.spec.max_backoff_s, state.spec.backoff_s * 2.0 ** min(state.streak - 2, 32))


def _start(turn: Turn) -> None:
    state, offer = turn.state, turn.state.offer
    if _is_over(state):
        return
    if offer is not None and offer.id != state.verified:
        turn.do(do.SetTimer("backoff", state.spec.backoff_s))
        return
    if state.world_size is None:
        _wait_for_capacity(turn)
        return
    resume, base = (offer.id, offer.report) if offer is not None else (None, 0)
    turn.do(do.Decide(ev.GroupStarted(state.generation + 1, state.world_size, resume, base)))


def _wait_for_capacity(turn: Turn) -> None:
    if turn.state.phase is Phase.RESTORING:
        _move(turn, "no capacity")
    if not turn.state.lacking:
        least, room = turn.state.spec.min_workers or turn.state.spec.num_workers, turn.state.capacity or 0
        turn.do(do.Decide(ev.CapacityLacking(least, room)))


def _capacity_lacking(turn: Turn, event: ev.CapacityLacking) -> str:
    turn.change(lacking=True)
    text = f"waiting for room for {event.least} workers: there is room for {event.room} now"
    turn.do(do.Warn(text))
    return text


def _capacity(turn: Turn, event: ev.Capacity) -> str:
    turn.change(capacity=event.slots)
    if turn.state.phase is Phase.WAITING and turn.state.lacking:
        _start(turn)
    scaling.consider_resize(turn)
    return f"there is room for {event.slots} workers"


def _group_started(turn: Turn, event: ev.GroupStarted) -> str:
    ranks = (Rank(seen=turn.now),) * event.world_size
    turn.change(generation=event.generation, resume=event.resume, base=event.base)
    turn.change(ranks=ranks, pending={}, names=frozenset(), given_up=frozenset(), missed=None)
    turn.change(verdict=None, failure=None, started=turn.now, lacking=False, handover=None, suspect=None)
    turn.jump(Phase.STARTING)
    turn.do(do.StartGroup(event.generation, event.world_size, event.resume, event.base))
    turn.do(do.SetTimer("start", turn.state.spec.start_timeout_s))
    return f"group {event.generation} of {event.world_size} starts from {event.resume or 'the beginning'}"


def _worker_ready(turn: Turn, event: ev.WorkerReady) -> str:
    if not turn.is_current(event.generation) or turn.state.ranks[event.rank].status is not RankStatus.STARTING:
        return "no news"
    turn.set_rank(event.rank, status=RankStatus.RUNNING, seen=turn.now)
    if turn.state.phase is Phase.STARTING and all(r.status is not RankStatus.STARTING for r in turn.state.ranks):
        _move(turn, "all ready")
        turn.change(suspect=None)
        turn.do(do.CancelTimer("start"), do.CancelTimer("stacks"))
        if turn.state.spec.hang_timeout_s > 0 or turn.state.spec.learns_hangs:
            turn.do(do.SetTimer("hang", turn.state.spec.hang_timeout_s or _LEAST_LEARNT_S))
        scaling.consider_resize(turn)
        _leave_if_all_returned(turn)
    return f"rank {event.rank} is training"


def _progressed(turn: Turn, event: ev.Progressed) -> str:
    if not turn.is_current(event.generation):
        return "a group that is gone"
    turn.saw_reports(event.rank, event.reports)
    return f"rank {event.rank} has made {event.reports} reports"


def _storage_failed(turn: Turn, event: ev.ShardFailed | ev.CommitFailed) -> str:
    pending = turn.find_pending(event.generation, event.index)
    if pending is not None:
        turn.drop_pending(pending)
        if pending.committing:
            turn.do(do.Delete(pending.id))  # it may have failed when the manifest was written already
    current = event.generation == turn.state.generation
    if pending is not None or current:
        turn.do(do.Discard(event.generation, event.index))
    if current:
        turn.do(do.CancelTimer(f"missing:{event.index}"))
        turn.change(given_up=turn.state.given_up | {event.index})
    elif isinstance(event, ev.ShardFailed) or not turn.state.spec.remote:
        return "a group that is gone"
    rank = event.rank if isinstance(event, ev.ShardFailed) else -1
    return _fail(turn, rank, Evidence(storage=True, message=event.message))


def _upload_failed(turn: Turn, event: ev.UploadFailed) -> str:
    """Try again as long as the budget allows, beside a training that goes on. Nothing staged is given up: when the run
    ends for it, the next driver on that node uploads it."""
    state = turn.state
    text = describe(-1, Evidence(storage=True, message=event.message))
    turn.change(spent={**state.spent, "storage": state.spent.get("storage", 0) + 1})
    if not _is_spent(turn.state, FailureKind.STORAGE):
        checkpointing.upload_again(turn, event)
        return f"{text}; it is tried again"
    turn.change(cut_off=True)
    if state.verdict is not Verdict.FAIL:  # else the first cause is named
        turn.change(failure=Failure(state.generation, -1, FailureKind.STORAGE, text), verdict=Verdict.FAIL)
    if state.group_lives:
        _end_group(turn, "failure", graceful=False)
    elif state.phase in (Phase.RESTORING, Phase.WAITING):
        _end(turn, Outcome.FAILED, text)
    return text


def _worker_failed(turn: Turn, event: ev.WorkerFailed) -> str:
    if not turn.is_current(event.generation):
        return "a group that is gone"
    if turn.state.ranks[event.rank].status is not RankStatus.RETURNED:  # else all that it had to report is there
        turn.set_rank(event.rank, status=RankStatus.DEAD)
    counted = turn.state.group_lives and not _stops_soon(turn.state)
    text = _fail(turn, event.rank, event.evidence)
    if counted:
        _note_node(turn, event)
        _note_same_error(turn, event)
    return text


def _note_node(turn: Turn, event: ev.WorkerFailed) -> None:
    """A node on which processes die again and again is left alone for a time."""
    state, node = turn.state, event.node
    if not node or classify(event.evidence) in (FailureKind.USER_ERROR, FailureKind.PREEMPTED):
        return
    count = state.node_failures.get(node, 0) + 1
    turn.change(node_failures={**state.node_failures, node: count})
    if 0 < state.spec.bad_node_failures <= count and node not in state.resting:
        turn.change(resting=state.resting | {node})
        turn.do(do.Rest(node, on=True), do.SetTimer(f"rest:{node}", state.spec.bad_node_rest_s))
        turn.do(
            do.Warn(f"{node} had {count} failures: no worker is placed there for {state.spec.bad_node_rest_s:.0f} s")
        )


def _node_rested(turn: Turn, event: ev.NodeRested) -> str:
    left = {node: count for node, count in turn.state.node_failures.items() if node != event.node}
    turn.change(resting=turn.state.resting - {event.node}, node_failures=left)
    turn.do(do.Rest(event.node, on=False))
    return f"{event.node} is given another chance"


def _note_same_error(turn: Turn, event: ev.WorkerFailed) -> None:
    """To try a bug again costs money and brings nothing, if the person says so."""
    evidence = event.evidence
    if classify(evidence) is not FailureKind.USER_ERROR:
        return
    what = f"{evidence.exception}: {evidence.message}"
    before, at, count = turn.state.same_error
    count = count + 1 if (before, at) == (what, event.at) else 1
    turn.change(same_error=(what, event.at, count))
    if _repeats(turn.state) and turn.state.failure is not None:
        text = f"{turn.state.failure.text}, {count} times at report {event.at} without progress in between"
        turn.change(verdict=Verdict.FAIL, failure=structs.replace(turn.state.failure, text=text))


def _stops_soon(state: RunState) -> bool:
    return state.verdict is Verdict.STOP


def _fail(turn: Turn, rank: int, evidence: Evidence) -> str:
    """Count the first failure of a group and end the group; what follows from it is not counted again."""
    state = turn.state
    late = state.phase in (Phase.STOPPING, Phase.SETTLING) and state.verdict is Verdict.FINISH
    text = describe(rank, evidence)
    if not state.group_lives and not late:
        return f"{text} (not counted)"
    if state.group_lives and _stops_soon(state):
        _end_group(turn, "stop asked", graceful=False)
        return f"{text} (not counted, as the run stops anyway)"
    kind = classify(evidence)
    budget, _ = budget_of(state.spec, kind)
    spent = {**state.spent, budget: state.spent.get(budget, 0) + 1}
    turn.change(spent=spent, streak=state.streak + 1, failure=Failure(state.generation, rank, kind, text))
    turn.change(verdict=Verdict.FAIL if _is_spent(turn.state, kind) else Verdict.RETRY)
    if state.group_lives:
        _end_group(turn, "failure", graceful=False)
    return text


def _end_group(turn: Turn, trigger: str, graceful: bool) -> None:
    _move(turn, trigger)
    turn.change(handover=None, suspect=None)
    turn.do(do.StopGroup(turn.state.generation, graceful))
    stopped = (f"stopped:{rank}" for rank, known in enumerate(turn.state.ranks) if known.stopped)
    turn.do(*(do.CancelTimer(name) for name in ("start", "hang", "stacks", "handover", "resize", *stopped)))


def _handed_over(turn: Turn, event: ev.HandedOver) -> str:
    if event.generation != turn.state.generation or not turn.state.group_lives:
        return "that group is gone"
    verdict = Verdict.STOP if event.reason is HandoverReason.STOP else Verdict.RETRY
    if event.reason is HandoverReason.PREEMPTION:
        turn.change(spent={**turn.state.spent, "preemptions": turn.state.spent.get("preemptions", 0) + 1})
        if _is_spent(turn.state, FailureKind.PREEMPTED):
            text = describe(-1, Evidence(preempted=True, message="its nodes are taken away once more"))
            turn.change(failure=Failure(event.generation, -1, FailureKind.PREEMPTED, text))
            verdict = Verdict.FAIL
    turn.change(verdict=verdict)
    _end_group(turn, "handed over", graceful=False)
    return f"group {event.generation} hands over: {event.reason.value}"


def _handover_is_late(turn: Turn) -> None:
    handover = turn.state.handover
    if handover is None or not turn.state.group_lives:
        return
    if handover.reason is HandoverReason.STOP:
        _end_group(turn, "stop asked", graceful=True)
    elif handover.reason is HandoverReason.PREEMPTION:
        message = "its node goes, and no checkpoint came in time"
        evidence = Evidence(preempted=True, message=message)
        _declare(turn, next(iter(handover.ranks), 0), evidence)


def budget_of(spec: RunSpec, kind: FailureKind) -> tuple[str, int]:
    if kind is FailureKind.PREEMPTED:
        return "preemptions", spec.max_preemption_failures
    if kind is FailureKind.STORAGE:
        return "storage", spec.max_failures
    if kind is FailureKind.HANG and spec.max_hang_failures is not None:
        return "hangs", spec.max_hang_failures
    return "failures", spec.max_failures


def _is_final(state: RunState, kind: FailureKind) -> bool:
    """Whether no other group may follow a failure of that kind."""
    return _is_spent(state, kind) or (kind is FailureKind.USER_ERROR and _repeats(state))


def _repeats(state: RunState) -> bool:
    return 0 < state.spec.max_same_errors < state.same_error[2]


def _is_spent(state: RunState, kind: FailureKind) -> bool:
    budget, limit = budget_of(state.spec, kind)
    return 0 <= limit < state.spent.get(budget, 0)


def _worker_returned(turn: Turn, event: ev.WorkerReturned) -> str:
    if not turn.is_current(event.generation):
        return "a group that is gone"
    turn.set_rank(event.rank, status=RankStatus.RETURNED)
    _leave_if_all_returned(turn)
    return f"rank {event.rank} returned"


def _leave_if_all_returned(turn: Turn) -> None:
    if turn.state.phase is Phase.RUNNING and all(r.status is RankStatus.RETURNED for r in turn.state.ranks):
        if not _stops_soon(turn.state):
            turn.change(verdict=Verdict.FINISH)
        _end_group(turn, "all returned", graceful=True)


def _worker_stopped(turn: Turn, event: ev.WorkerStopped) -> str:
    if not turn.is_current(event.generation):
        return "a group that is gone"
    turn.set_rank(event.rank, stopped=event.stopped)
    timer, grace = f"stopped:{event.rank}", turn.state.spec.stopped_grace_s
    if grace > 0:
        turn.do(do.SetTimer(timer, grace) if event.stopped else do.CancelTimer(timer))
    return f"rank {event.rank} was {'stopped' if event.stopped else 'continued'} by a signal"


def _group_gone(turn: Turn, event: ev.GroupGone) -> str:
    if event.generation != turn.state.generation or turn.state.phase is not Phase.STOPPING:
        return "no news"
    _move(turn, "group gone")
    for rank, known in enumerate(turn.state.ranks):
        if known.status is not RankStatus.RETURNED:
            turn.set_rank(rank, status=RankStatus.DEAD)
    for index in list(turn.state.pending):
        if not turn.state.complete(index):
            turn.do(do.Discard(event.generation, index), do.CancelTimer(f"missing:{index}"))
            turn.drop_pending(turn.state.pending[index])
    return f"group {event.generation} is gone"


def _settle(turn: Turn) -> None:
    """When the group is gone and all that it completed is durable, go on to what follows. Where storage is far away
    the next group does not wait for that: it starts from what its nodes have. The end of the run does."""
    stops = turn.state.phase in (Phase.RESTORING, Phase.WAITING) and turn.state.verdict is Verdict.STOP
    if turn.state.phase is not Phase.SETTLING and not stops:
        return
    if turn.state.verdict is Verdict.RETRY:
        checkpointing.carry(turn)
    state = turn.state
    on_the_nodes = state.verdict is Verdict.RETRY or state.cut_off
    to_do = [p for p in state.unsaved if not p.is_sealed] if on_the_nodes else state.unsaved
    if to_do or (state.pending and not state.cut_off):
        return
    if state.verdict is Verdict.RETRY:
        _move(turn, "retry")
        _restore(turn)
    elif state.verdict is Verdict.FAIL:
        assert state.failure is not None
        _end(turn, Outcome.FAILED, state.failure.text)
    elif state.verdict is Verdict.STOP:
        _end(turn, Outcome.STOPPED, "it was asked to stop")
    elif state.missed is not None and state.missed.report > (state.newest.report if state.newest else 0):
        lost = state.missed
        turn.do(do.Decide(ev.CommitFailed(lost.generation, lost.index, f"{lost.id}, the last one, was lost")))
    elif not any(c.validation is ValidationStatus.PENDING for c in state.checkpoints):
        _end(turn, Outcome.FINISHED, "every rank returned")


def _end(turn: Turn, outcome: Outcome, reason: str) -> None:
    turn.do(do.Decide(ev.RunEnded(outcome, reason)))


def _run_ended(turn: Turn, event: ev.RunEnded) -> str:
    turn.change(outcome=event.outcome)
    turn.jump(Phase.ENDED)
    turn.do(do.Finish(event.outcome, event.reason))
    return f"the run {event.outcome.value}: {event.reason}"


def _stop_asked(turn: Turn, event: ev.StopAsked) -> str:
    state = turn.state
    if state.phase is Phase.ENDED:
        return "the run has ended already"
    if event.at_once:
        _end(turn, Outcome.STOPPED, "it was asked to stop at once")
    elif state.phase is Phase.RUNNING and event.grace_s > 0 and not _stops_soon(state):
        turn.change(verdict=Verdict.STOP)
        scaling.ask(turn, Handover(HandoverReason.STOP), event.grace_s)
    elif state.group_lives:
        turn.change(verdict=Verdict.STOP)
        _end_group(turn, "stop asked", graceful=True)
    elif state.phase in (Phase.RESTORING, Phase.WAITING) or state.verdict in (Verdict.RETRY, Verdict.FINISH):
        turn.change(verdict=Verdict.STOP)
    return "a stop was asked for"


def _timer_fired(turn: Turn, event: ev.TimerFired) -> str:
    name, _, which = event.name.partition(":")
    if name == "backoff" and turn.state.phase is Phase.WAITING:
        _start(turn)
    elif name == "start" and turn.state.phase is Phase.STARTING:
        late = next(r for r, rank in enumerate(turn.state.ranks) if rank.status is RankStatus.STARTING)
        _suspect(turn, late)
    elif name == "stopped" and turn.state.group_lives and any(r.stopped for r in turn.state.ranks[int(which) :][:1]):
        message = "its process was stopped by a signal"
        _declare(turn, int(which), Evidence(stalled_s=turn.state.spec.stopped_grace_s, message=message))
    elif name == "hang" and turn.state.phase is Phase.RUNNING:
        _look_for_a_hang(turn)
    elif name == "stacks":
        _condemn(turn, -1)
    elif name == "handover":
        _handover_is_late(turn)
    elif name == "resize":
        scaling.consider_resize(turn)
    elif name == "rest" and which in turn.state.resting:
        turn.do(do.Decide(ev.NodeRested(which)))
    elif name == "sync":
        checkpointing.sync(turn)
    elif name == "missing" and int(which) in turn.state.pending and turn.state.group_lives:
        _warn_of_missing(turn, int(which))
    return f"timer {event.name}"


def _look_for_a_hang(turn: Turn) -> None:
    limit, (slowest, idle) = _hang_limit(turn.state), _slowest(turn)
    if limit and idle >= limit:
        _suspect(turn, slowest)
    else:
        turn.do(do.SetTimer("hang", limit - idle if limit else _LEAST_LEARNT_S))


def _hang_limit(state: RunState) -> float:
    """A run's own pace tells what is long for it, when every rank has made some reports."""
    if state.spec.hang_timeout_s > 0 or not state.spec.learns_hangs:
        return state.spec.hang_timeout_s
    known = all(rank.reports >= _LEARNT_FROM or rank.status is RankStatus.RETURNED for rank in state.ranks)
    return max(_LEAST_LEARNT_S, _LEARNT_FACTOR * state.longest_gap) if known else 0.0


def _slowest(turn: Turn) -> tuple[int, float]:
    """The rank that has made no report for longest, and for how long. To wait for storage is no hang, nor is it one to
    wait where the group is handed over."""
    state = turn.state
    waiting = {rank for pending in state.pending.values() for rank in pending.awaited_by}
    if state.handover is not None and state.handover.index is not None:
        waiting.update(r for i, pending in state.pending.items() if i >= state.handover.index for r in pending.staged)
    running = [r for r, k in enumerate(state.ranks) if k.status is RankStatus.RUNNING and r not in waiting]
    slowest = min(running, key=lambda r: state.ranks[r].seen, default=0)
    return slowest, 0.0 if state.stalled or not running else turn.now - state.ranks[slowest].seen


def _suspect(turn: Turn, rank: int) -> None:
    """Before the group is ended, what its ranks are doing is written down: who hangs, and where."""
    if turn.state.suspect is None:
        turn.change(suspect=rank)
        turn.do(do.DumpStacks(turn.state.generation), do.SetTimer("stacks", _STACKS_WITHIN_S))


def _stacks_taken(turn: Turn, event: ev.StacksTaken) -> str:
    if event.generation != turn.state.generation:
        return "a group that is gone"
    _condemn(turn, event.rank)
    return "what the ranks are doing is known"


def _condemn(turn: Turn, cause: int) -> None:
    """End the group, unless the suspect has moved on meanwhile."""
    state = turn.state
    if state.suspect is None or not state.group_lives:
        return
    turn.change(suspect=None)
    turn.do(do.CancelTimer("stacks"))
    if state.phase is Phase.STARTING:
        message = "it did not enter its train function"
        limit, rank = state.spec.start_timeout_s, state.suspect if cause < 0 else cause
        _declare(turn, rank, Evidence(stalled_s=limit, started=False, message=message))
        return
    limit, (slowest, idle) = _hang_limit(state), _slowest(turn)
    if idle >= limit:
        _declare(turn, slowest if cause < 0 else cause, Evidence(stalled_s=idle))
    else:
        turn.do(do.SetTimer("hang", limit - idle))


def _declare(turn: Turn, rank: int, evidence: Evidence) -> None:
    turn.do(do.Decide(ev.WorkerFailed(turn.state.generation, rank, evidence)))


def _warn_of_missing(turn: Turn, index: int) -> None:
    missing = turn.state.missing(index)
    if not missing:
        return
    pending, ranks = turn.state.pending[index], ", ".join(map(str, missing))
    have = ", ".join(str(r) for r in range(len(turn.state.ranks)) if r not in missing)
    turn.do(
        do.Warn(
            f"{pending.id} waits for report number {index + 1} of rank {ranks}; rank {have} made it. "
            "A checkpoint is committed when every rank has reported (with checkpoint=None where it has no files)."
        ),
        do.SetTimer(f"missing:{index}", turn.state.spec.missing_warning_s),
    )


_HANDLERS: dict[type[ev.Event], Callable[[Turn, Any], str]] = {
    ev.DriverStarted: _driver_started,
    ev.GroupStarted: _group_started,
    ev.WorkerReady: _worker_ready,
    ev.Progressed: _progressed,
    ev.ShardStaged: checkpointing.shard_staged,
    ev.ShardSealed: checkpointing.shard_sealed,
    ev.ShardUploaded: checkpointing.shard_uploaded,
    ev.ShardFailed: _storage_failed,
    ev.UploadFailed: _upload_failed,
    ev.StorageLags: checkpointing.storage_lags,
    ev.StagedLost: _staged_lost,
    ev.WorkerReturned: _worker_returned,
    ev.WorkerFailed: _worker_failed,
    ev.StacksTaken: _stacks_taken,
    ev.Capacity: _capacity,
    ev.CapacityLacking: _capacity_lacking,
    ev.NodeDrains: scaling.node_drains,
    ev.NodeRested: _node_rested,
    ev.HandoverSet: scaling.handover_set,
    ev.HandedOver: _handed_over,
    ev.WorkerStopped: _worker_stopped,
    ev.GroupGone: _group_gone,
    ev.Committed: checkpointing.committed,
    ev.CommitFailed: _storage_failed,
    ev.Verified: _verified,
    ev.Damaged: _damaged,
    ev.Validated: checkpointing.validated,
    ev.TimerFired: _timer_fired,
    ev.StopAsked: _stop_asked,
    ev.RunEnded: _run_ended,
}
