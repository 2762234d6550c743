"""Failures: which of them counts, against which budget and which node, and whether another attempt may follow."""

from __future__ import annotations

from msgspec import structs

from holdfast.core.budgets import CLASSES, budget_of
from holdfast.core.failures import Evidence, FailureKind, classify, describe, may_follow
from holdfast.core.run import checkpointing, timers
from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run.phases import end_attempt, end_run, stops_soon
from holdfast.core.run.state import Charge, Durable, Failure, Outcome, Phase, RankStatus, Verdict
from holdfast.core.run.turn import Turn


def worker_failed(turn: Turn, event: ev.WorkerFailed) -> str:
    if not turn.is_current(event.attempt_number):
        return "an attempt that is gone"
    if turn.state.ranks[event.rank].status is not RankStatus.RETURNED:  # otherwise all its reports have arrived
        turn.set_rank(event.rank, status=RankStatus.DEAD)
    if _is_the_cause(turn.state.durable.charge, event):
        return _count_instead(turn, event)
    counted, same_error = turn.state.durable.is_undecided, turn.state.durable.same_error
    text = _fail(turn, event.rank, event.evidence)
    if counted:
        _note_node(turn, event)
        _note_same_error(turn, event)
        if CLASSES[classify(event.evidence)].may_be_knock_on:
            turn.record(charge=Charge(event.node, same_error, may_follow(event.evidence)))
    return text


def _is_the_cause(charge: Charge | None, event: ev.WorkerFailed) -> bool:
    """When a node is lost, workers on other nodes fail because of it. Their failures may arrive before the news of the
    node."""
    if charge is None or not event.evidence.node_lost:
        return False
    return charge.elsewhere or (bool(event.node) and event.node == charge.node)


def _count_instead(turn: Turn, event: ev.WorkerFailed) -> str:
    """Undo the counting of the attempt's failure, except that there was one."""
    known, text = turn.state.durable, describe(event.rank, event.evidence)
    charge, failure = known.charge, known.failure
    assert charge is not None
    assert failure is not None
    counter = budget_of(known.spec, failure.kind)[0].counter
    spent = {name: count - (name == counter) for name, count in known.spent.items()}
    turn.record(spent={name: count for name, count in spent.items() if count}, same_error=charge.same_error)
    if charge.of_node and CLASSES[failure.kind].blames_node:
        _clear_node(turn, charge.node)
    turn.record(charge=None)
    count(turn, event.rank, event.evidence, text, instead=True)
    _note_node(turn, event)
    if turn.state.attempt_lives:  # a rank of it was being replaced
        end_attempt(turn, "failure", graceful=False)
    return f"{text}, of which {failure.text}"


def storage_failed(turn: Turn, event: ev.ShardFailed | ev.CommitFailed) -> str:
    pending = turn.find_pending(event.attempt_number, event.index)
    if pending is not None:
        turn.drop_pending(pending)
        if pending.committing:
            turn.do(do.Delete(pending.id))  # the manifest may have been written before the failure
    current = event.attempt_number == turn.state.attempt_number
    if pending is not None or current:
        turn.do(do.Discard(event.attempt_number, event.index))
    if current:
        turn.do(do.CancelTimer(timers.missing(event.index)))
        checkpointing.give_up(turn, event.index)
    elif isinstance(event, ev.ShardFailed) or not turn.state.spec.files.outlive_attempt:
        return "an attempt that is gone"
    rank = event.rank if isinstance(event, ev.ShardFailed) else -1
    return _fail(turn, rank, Evidence(storage=True, message=event.message))


def upload_failed(turn: Turn, event: ev.UploadFailed) -> str:
    """Try again as long as the budget allows, while training continues. Nothing staged is given up: when the run
    ends for it, the next driver on that node uploads it."""
    state = turn.state
    text = describe(-1, Evidence(storage=True, message=event.message))
    spend(turn, FailureKind.STORAGE)
    if not is_spent(turn.state.durable, FailureKind.STORAGE):
        checkpointing.upload_again(turn, event)
        return f"{text}; retrying"
    turn.record(cut_off=True, charge=None)
    if state.verdict is not Verdict.FAIL:  # else the first cause is named
        turn.record(failure=Failure(state.attempt_number, -1, FailureKind.STORAGE, text), verdict=Verdict.FAIL)
    if state.attempt_lives:
        end_attempt(turn, "failure", graceful=False)
    elif state.phase in (Phase.RESTORING, Phase.WAITING):
        end_run(turn, Outcome.FAILED, text)
    return text


def _fail(turn: Turn, rank: int, evidence: Evidence) -> str:
    """Count the first failure of an attempt and end the attempt; what follows from it is not counted again."""
    state = turn.state
    text = describe(rank, evidence)
    if state.attempt_lives and stops_soon(state):
        end_attempt(turn, "stop asked", graceful=False)
        return f"{text} (not counted, as the run stops anyway)"
    if not state.durable.is_undecided:
        return f"{text} (not counted)"
    turn.record(streak=state.durable.streak + 1, charge=None)  # the charge of a rank that was being replaced is final
    count(turn, rank, evidence, text)
    if state.attempt_lives:
        end_attempt(turn, "failure", graceful=False)
    return text


def count(turn: Turn, rank: int, evidence: Evidence, text: str, instead: bool = False) -> None:
    kind = classify(evidence)
    spend(turn, kind)
    verdict = Verdict.FAIL if is_spent(turn.state.durable, kind) else Verdict.RETRY
    turn.record(failure=Failure(turn.state.attempt_number, rank, kind, text, instead), verdict=verdict)


def spend(turn: Turn, kind: FailureKind) -> None:
    spent, counter = turn.state.durable.spent, budget_of(turn.state.spec, kind)[0].counter
    turn.record(spent={**spent, counter: spent.get(counter, 0) + 1})


def declare(turn: Turn, rank: int, evidence: Evidence) -> None:
    turn.do(do.Decide(ev.WorkerFailed(turn.state.attempt_number, rank, evidence)))


def _note_same_error(turn: Turn, event: ev.WorkerFailed) -> None:
    """The user may limit how often the same error is retried: a bug does not go away."""
    evidence = event.evidence
    if classify(evidence) is not FailureKind.USER_ERROR:
        return
    what = f"{evidence.exception}: {evidence.message}"
    before, at, count = turn.state.durable.same_error
    count = count + 1 if (before, at) == (what, event.at) else 1
    turn.record(same_error=(what, event.at, count))
    if _repeats(turn.state.durable) and turn.state.failure is not None:
        text = f"{turn.state.failure.text}, {count} times at report {event.at} without progress in between"
        turn.record(verdict=Verdict.FAIL, failure=structs.replace(turn.state.failure, text=text))


def _note_node(turn: Turn, event: ev.WorkerFailed) -> None:
    """A node on which processes die again and again is left alone for a time."""
    known, node = turn.state.durable, event.node
    if not node or not CLASSES[classify(event.evidence)].blames_node:
        return
    count, rest_s = known.node_failures.get(node, 0) + 1, known.spec.bad_node_rest_s
    turn.record(node_failures={**known.node_failures, node: count})
    if 0 < known.spec.bad_node_failures <= count and node not in known.resting:
        turn.record(resting=known.resting | {node})
        turn.do(do.Rest(node, on=True), do.SetTimer(timers.rest(node), rest_s))
        turn.do(do.Warn(f"{node} had {count} failures: no worker is placed there for {rest_s:.0f} s"))


def _clear_node(turn: Turn, node: str) -> None:
    """Count one failure less for the node. It need not rest if that failure was the reason."""
    known = turn.state.durable
    count = known.node_failures.get(node, 0) - 1
    if count < 0:
        return
    others = {other: n for other, n in known.node_failures.items() if other != node}
    turn.record(node_failures={**others, node: count} if count else others)
    if node in known.resting and count < known.spec.bad_node_failures:
        turn.record(resting=known.resting - {node})
        turn.do(do.Rest(node, on=False), do.CancelTimer(timers.rest(node)))


def node_rested(turn: Turn, event: ev.NodeRested) -> str:
    known = turn.state.durable
    left = {node: count for node, count in known.node_failures.items() if node != event.node}
    turn.record(resting=known.resting - {event.node}, node_failures=left)
    turn.do(do.Rest(event.node, on=False))
    return f"{event.node} is given another chance"


def is_final(durable: Durable, kind: FailureKind) -> bool:
    """Whether no other attempt may follow a failure of that kind."""
    return is_spent(durable, kind) or (kind is FailureKind.USER_ERROR and _repeats(durable))


def _repeats(durable: Durable) -> bool:
    return 0 < durable.spec.max_same_errors < durable.same_error[2]


def is_spent(durable: Durable, kind: FailureKind) -> bool:
    budget, limit = budget_of(durable.spec, kind)
    return 0 <= limit < durable.spent.get(budget.counter, 0)
