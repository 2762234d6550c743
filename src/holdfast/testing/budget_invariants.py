"""The remaining budgets of a run, counted only from the journal, exactly and separately for each kind of failure."""

from __future__ import annotations

from holdfast.core.failures import FailureKind, classify
from holdfast.core.run import events as ev
from holdfast.core.run.state import Durable, Outcome, RunSpec

from .fates import Violation, expect

INVARIANT = "6 budgets only go down, and N failures allow N retries"

CAUSE = "a lost node is named, not what its loss made others do"
UNCERTAIN = (FailureKind.USER_ERROR, FailureKind.CRASH, FailureKind.HANG, FailureKind.START_UP)


class Budgets:
    def __init__(self) -> None:
        self.cut_off = False  # whether storage was unavailable for too long
        self._attempt_number = 0  # the driver's last attempt
        self._over = False  # whether that attempt's end was counted, or planned
        self._asked_to_stop = False
        self._first: ev.WorkerFailed | None = None  # what was counted, if it may have followed from a node's loss
        self._before: tuple[str, int, int] = ("", -1, 0)  # the last error before that one
        self._same: tuple[str, int, int] = ("", -1, 0)  # the last error, where, and how often
        self._nodes: dict[str, int] = {}  # failures, by node
        self._resting: frozenset[str] = frozenset()

    def journalled(self, before: Durable, event: ev.Event, after: Durable) -> None:
        expected = dict(before.spent)
        if isinstance(event, ev.DriverStarted):
            self.cut_off, self._attempt_number, self._over, self._asked_to_stop = False, 0, False, False
            self._first = None
            if before.outcome in (Outcome.FINISHED, Outcome.FAILED):
                expected, self._same = {}, ("", -1, 0)
        elif isinstance(event, ev.StopAsked):
            self._asked_to_stop, self._first = True, None
        elif isinstance(event, ev.UploadFailed):
            expected["storage"] = expected.get("storage", 0) + 1
            if 0 <= before.spec.max_failures < expected["storage"]:
                self.cut_off = self._over = True
                self._first = None
        elif self._is_the_cause(event):
            assert isinstance(event, ev.WorkerFailed)
            self._take_back(before.spec, expected)
            self._count(event, before.spec, expected)
            self._over = True
            expect(after.failure is not None and after.failure.rank == event.rank, CAUSE, f"{after.failure} by {event}")
        elif self._counts(event, before):
            self._before = self._same
            self._count(event, before.spec, expected)
            live = isinstance(event, ev.WorkerFailed) and event.live  # its attempt continues if it can
            self._over = not live or any(0 <= most < expected.get(name, 0) for name, most in _limits(before.spec))
            of_worker = isinstance(event, ev.WorkerFailed) and classify(event.evidence) in UNCERTAIN
            self._first = event if of_worker else None  # type: ignore[assignment]
        elif isinstance(event, ev.Regrouped):
            self._first = None
        elif self._gives_up_the_rank(event):
            self._over = True
        elif isinstance(event, ev.NodeRested):
            self._nodes.pop(event.node, None)
            self._resting -= {event.node}
        if after.spent != expected:
            raise Violation(INVARIANT, f"spent {after.spent} after {event}, expected {expected}")
        if after.same_error != self._same:
            raise Violation("the same error is counted exactly", f"{after.same_error} {self._same}")
        if after.node_failures != self._nodes or after.resting != self._resting:
            counted = f"{after.node_failures} {after.resting}, and not {self._nodes}"
            raise Violation("failures are counted by node", counted)
        if isinstance(event, ev.RunEnded) and event.outcome is Outcome.FAILED:
            self._judge_failed(after)

    def _count(self, event: ev.Event, spec: RunSpec, spent: dict[str, int]) -> None:
        budget = _budget(event, spec)
        if budget:
            spent[budget] = spent.get(budget, 0) + 1
        if isinstance(event, ev.WorkerFailed) and not event.live:
            self._note_error(event)
            self._note_node(event, spec)

    def _is_the_cause(self, event: ev.Event) -> bool:
        """Whether the attempt failed because of a lost node, but another failure was counted first."""
        first = self._first
        if first is None or not isinstance(event, ev.WorkerFailed) or event.attempt_number != first.attempt_number:
            return False
        follows = first.evidence.signal in (None, 6) or (first.node and first.node == event.node)
        return event.evidence.node_lost and bool(follows)

    def _take_back(self, spec: RunSpec, spent: dict[str, int]) -> None:
        first = self._first
        assert first is not None
        self._first, self._same = None, self._before
        budget = _budget(first, spec)
        spent[budget] -= 1
        if not spent[budget]:
            del spent[budget]
        if not first.live and classify(first.evidence) is not FailureKind.USER_ERROR and first.node in self._nodes:
            self._nodes[first.node] -= 1
            if self._nodes[first.node] < spec.bad_node_failures:
                self._resting -= {first.node}
            if not self._nodes[first.node]:
                del self._nodes[first.node]

    def _counts(self, event: ev.Event, before: Durable) -> bool:
        """The first failure of the driver's last attempt counts, unless its end was planned before that."""
        if not isinstance(event, ev.WorkerFailed | ev.ShardFailed | ev.CommitFailed | ev.HandedOver):
            return False
        current = self._attempt_number > 0 and event.attempt_number == self._attempt_number
        if isinstance(event, ev.WorkerFailed) and event.follows:
            return False
        if isinstance(event, ev.CommitFailed) and before.spec.nodes_hold_files:
            current = self._attempt_number > 0  # it may belong to a checkpoint of an earlier attempt
        return current and not self._over and not self._asked_to_stop

    def _gives_up_the_rank(self, event: ev.Event) -> bool:
        """The rank could not be replaced, so its failure is counted and ends the attempt."""
        follows = isinstance(event, ev.WorkerFailed) and event.follows
        return (follows or isinstance(event, ev.RegroupFailed)) and event.attempt_number == self._attempt_number  # type: ignore[attr-defined]

    def _note_error(self, event: ev.WorkerFailed) -> None:
        if classify(event.evidence) is FailureKind.USER_ERROR:
            what = f"{event.evidence.exception}: {event.evidence.message}"
            before, at, count = self._same
            self._same = (what, event.at, count + 1 if (before, at) == (what, event.at) else 1)

    def _note_node(self, event: ev.WorkerFailed, spec: RunSpec) -> None:
        blameless = classify(event.evidence) in (FailureKind.USER_ERROR, FailureKind.PREEMPTED)
        if event.node and not blameless:
            count = self._nodes[event.node] = self._nodes.get(event.node, 0) + 1
            if 0 < spec.bad_node_failures <= count:
                self._resting |= {event.node}

    def _too_often(self, spec: RunSpec) -> int:
        """How many times more than allowed the same error came."""
        return self._same[2] - spec.max_same_errors if spec.max_same_errors else 0

    def _judge_failed(self, after: Durable) -> None:
        over = {budget: after.spent.get(budget, 0) - limit for budget, limit in _limits(after.spec) if limit >= 0}
        if after.spec.nodes_hold_files and over.get("storage", 0) > 0:
            over["storage"] = 1  # several uploads may fail before the run has ended
        lawful = 1 in over.values() or self._too_often(after.spec) == 1
        expect(lawful, INVARIANT, f"failed with {after.spent} spent of {after.spec}, {self._same}")

    def starts(self, event: ev.AttemptStarted, before: Durable, again: bool) -> None:
        paid = all(limit < 0 or before.spent.get(budget, 0) <= limit for budget, limit in _limits(before.spec))
        expect(paid, INVARIANT, f"{event} with {before.spent} spent")
        expect(self._too_often(before.spec) <= 0, "the same error is counted exactly", f"{event} after {self._same}")
        expect(self._over or not again, "6 a retry has its price", f"{event} without a counted failure")
        self._attempt_number, self._over, self._first = event.attempt_number, False, None


def _limits(spec: RunSpec) -> list[tuple[str, int]]:
    hangs = -1 if spec.max_hang_failures is None else spec.max_hang_failures
    preemptions = spec.max_preemption_failures
    return [
        ("failures", spec.max_failures),
        ("storage", spec.max_failures),
        ("hangs", hangs),
        ("preemptions", preemptions),
    ]


def _budget(event: ev.Event, spec: RunSpec) -> str:
    if isinstance(event, ev.HandedOver):
        return ""
    kind = classify(event.evidence) if isinstance(event, ev.WorkerFailed) else FailureKind.STORAGE
    if kind is FailureKind.HANG and spec.max_hang_failures is not None:
        return "hangs"
    return {FailureKind.STORAGE: "storage", FailureKind.PREEMPTED: "preemptions"}.get(kind, "failures")
