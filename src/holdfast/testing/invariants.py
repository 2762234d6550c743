"""What must be true after every step, kept apart from the machine: the judge counts for itself.

What is durable is judged on a replay that takes each record as it is journalled; the live state must agree with it.
"""

from __future__ import annotations

import math

from msgspec import structs

from holdfast.core import commands as do
from holdfast.core import events as ev
from holdfast.core import run
from holdfast.core.failures import FailureKind, classify
from holdfast.core.state import CheckpointRecord, Outcome, Phase, RunSpec, RunState, ValidationStatus

from .fake_engine import FakeEngine, Status
from .fake_store import FakeStore

DURABLE_FIELDS = ("spent", "streak", "checkpoints", "damaged", "generation", "resume", "base", "outcome", "epoch")
LONGEST_CHAIN = 4  # moves in one step: gone, retry, back off
JUMPS = {ev.DriverStarted: Phase.RESTORING, ev.GroupStarted: Phase.STARTING, ev.RunEnded: Phase.ENDED}


class Violation(Exception):
    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant, self.what = invariant, what


class Judge:
    def __init__(self, engine: FakeEngine, store: FakeStore) -> None:
        self.shadow = RunState()  # the replay of the journal so far
        self._engine, self._store = engine, store
        self._history: list[int] = []  # the generation that made each report that survives
        self._verified: set[str] = set()
        self._settled: set[int] = set()  # indices of the group that were committed or that storage failed on
        self._group: ev.GroupStarted | None = None  # the driver's last one
        self._failed = False  # whether that group's failure was counted
        self._asked_to_stop = False
        self._at_once = False
        self._committing: set[tuple[int, int]] = set()  # (generation, index)

    def reported(self, generation: int, report: int) -> None:
        if report > len(self._history) + 1:
            raise Violation("7 history is contiguous", f"report {report} follows {len(self._history)}")
        if report == len(self._history) + 1:
            self._history.append(generation)

    def commit_refused(self, id: str, why: str) -> None:
        raise Violation("1 a committed checkpoint is never written into again", f"{id}: {why}")

    def recovered(self, state: RunState) -> None:
        _agree(state, self.shadow, "a replay of the whole journal")
        self._verified.clear()
        self._committing.clear()

    def journalled(self, event: ev.Event) -> None:
        before = self.shadow
        try:
            after = self.shadow = run.replay(before, event)
        except Exception as error:
            raise Violation("a replay never raises", f"{type(error).__name__}: {error} on {event}") from error
        over = before.outcome is not None and isinstance(event, ev.RunEnded | ev.GroupStarted)
        _expect(not over, "9 the run ends once", f"{event} after the run {before.outcome}")
        self._judge_budgets(before, event, after)
        self._judge_checkpoints(before, event, after)
        if isinstance(event, ev.DriverStarted):
            _expect(event.epoch > before.epoch, "3 one driver", f"epoch {event.epoch} after {before.epoch}")
            self._group, self._failed, self._asked_to_stop, self._at_once = None, False, False, False
        elif isinstance(event, ev.GroupStarted):
            self._judge_start(before, event)
        elif isinstance(event, ev.StopAsked):
            self._asked_to_stop = True
            self._at_once = self._at_once or event.at_once
        elif isinstance(event, ev.RunEnded):
            self._judge_end(event, after)
        elif isinstance(event, ev.Committed | ev.ShardFailed | ev.CommitFailed):
            if self._group is not None and event.generation == self._group.generation:
                self._settled.add(event.index)
            self._committing.discard((event.generation, event.index))

    def stepped(self, before: RunState, event: ev.Event, after: RunState, commands: list[do.Command]) -> None:
        self._judge_phase(before, event, after)
        _agree(after, self.shadow, type(event).__name__)
        if isinstance(event, ev.Verified):
            self._verified.add(event.id)
        for command in commands:
            if isinstance(command, do.Delete):
                held = any(c.id == command.id for c in after.checkpoints)
                _expect(not held, "2 nothing committed is lost", f"{command.id} is deleted and still offered")
            elif isinstance(command, do.Quarantine):
                manifest = self._store.manifests.get(command.id)
                good = manifest is not None and not manifest.damaged
                _expect(not good, "2 nothing committed is lost", f"{command.id} is set aside, and is good")

    def _judge_phase(self, before: RunState, event: ev.Event, after: RunState) -> None:
        was, now = before.phase, after.phase
        if isinstance(event, ev.GroupStarted):
            lawful = was in (Phase.RESTORING, Phase.WAITING) and now is Phase.STARTING
        elif type(event) in JUMPS:
            lawful = now is JUMPS[type(event)]
        else:
            lawful = was is now or (was, now) in _REACHABLE
        _expect(lawful, "phases follow TRANSITIONS", f"{was.value} -> {now.value} on {type(event).__name__}")

    def _judge_budgets(self, before: RunState, event: ev.Event, after: RunState) -> None:
        invariant = "6 budgets only go down, and N failures allow N retries"
        expected = dict(before.spent)
        if isinstance(event, ev.DriverStarted):
            if before.outcome in (Outcome.FINISHED, Outcome.FAILED):
                expected = {}
        elif self._counts(event):
            budget = "storage" if _kind(event) is FailureKind.STORAGE else "failures"
            expected[budget] = expected.get(budget, 0) + 1
            self._failed = True
        _expect(after.spent == expected, invariant, f"spent {after.spent} after {event}, expected {expected}")
        if isinstance(event, ev.RunEnded) and event.outcome is Outcome.FAILED:
            limit = after.spec.max_failures
            lawful = limit >= 0 and max(after.spent.values(), default=0) == limit + 1
            _expect(lawful, invariant, f"failed with {after.spent} of {limit} spent")

    def _counts(self, event: ev.Event) -> bool:
        """The first failure of the driver's last group counts, unless the run was asked to stop before."""
        if not isinstance(event, ev.WorkerFailed | ev.ShardFailed | ev.CommitFailed):
            return False
        current = self._group is not None and event.generation == self._group.generation
        return current and not self._failed and not self._asked_to_stop

    def _judge_checkpoints(self, before: RunState, event: ev.Event, after: RunState) -> None:
        if after.checkpoints is before.checkpoints:
            return
        had, has = {c.id: c for c in before.checkpoints}, {c.id: c for c in after.checkpoints}
        if isinstance(event, ev.Committed):
            again = event.record.id in before.damaged
            _expect(not again, "1 what was damaged is never offered again", event.record.id)
            had[event.record.id] = event.record
        elif isinstance(event, ev.Validated) and event.id in had:
            had[event.id] = structs.replace(had[event.id], validation=event.status)
            if event.score is not None:
                had[event.id] = structs.replace(had[event.id], score=event.score)
        elif isinstance(event, ev.Damaged):
            had.pop(event.id, None)
        invented = has.keys() - had.keys()
        _expect(not invented, "1 only what is committed is offered", f"{invented} came from nowhere")
        pinned = self._group.resume if self._group is not None else None
        for id in had.keys() - has.keys():
            held = _held_by(had[id], list(had.values()), after.spec, pinned)
            _expect(held is None, "2 nothing committed is lost", f"{id} was dropped, and is {held}")
        if isinstance(event, ev.Committed):
            records = list(has.values())
            spare = [c.id for c in records if _held_by(c, records, after.spec, pinned) is None]
            _expect(not spare, "2 retention keeps no more than it must", f"{spare} could go")

    def _judge_start(self, before: RunState, event: ev.GroupStarted) -> None:
        newest = max(before.checkpoints, key=lambda c: c.report, default=None)
        wanted = (newest.id, newest.report) if newest is not None else (None, 0)
        latest = (event.resume, event.base) == wanted
        _expect(latest, "2 a run goes on from its newest checkpoint", f"{event} where {wanted} is newest")
        limit = before.spec.max_failures
        paid = limit < 0 or max(before.spent.values(), default=0) <= limit
        _expect(paid, "6 budgets only go down, and N failures allow N retries", f"{event} with {before.spent} spent")
        if self._group is not None:
            _expect(self._failed, "6 a retry has its price", f"{event} without a counted failure")
            self._judge_left_behind()
        _expect(not self._asked_to_stop, "9 the run ends", "a group starts after a stop was asked for")
        _expect(event.generation > before.generation, "4 generations are new", f"{event} after {before.generation}")
        self._group, self._failed, self._settled = event, False, set()
        del self._history[event.base :]

    def _judge_left_behind(self) -> None:
        """What the last group made complete is durable before the run goes on, or storage failed on it."""
        group = self._engine.group
        if group is None or self._group is None or group.generation != self._group.generation:
            return
        whole = {index for index in group.files if group.reported_by_all(index)}
        lost = whole - self._settled
        _expect(not lost, "2 what was reported by all is made durable", f"reports {lost} of {group.generation}")

    def _judge_end(self, event: ev.RunEnded, after: RunState) -> None:
        if not self._at_once:
            gone = not self._engine.group_lives
            _expect(gone, "4 no process outlives its run", f"group {after.generation} lives at the end")
            if self._group is not None:
                self._judge_left_behind()
        if event.outcome is Outcome.FINISHED:
            group = self._engine.group
            done = group is not None and all(w.status is Status.RETURNED for w in group.workers)
            _expect(done, "9 finished means that every rank returned", f"group {after.generation} did not")

    def starts_group(self, command: do.StartGroup, spec: RunSpec) -> None:
        _expect(not self._engine.group_lives, "4 the old group is gone before the next starts", str(command))
        _expect(command.world_size == spec.num_workers, "5 the world is what was asked for", str(command))
        _expect(command.generation == self.shadow.generation, "4 generations are new", str(command))
        if command.resume is None:
            return
        _expect(command.resume in self._verified, "1 only what was verified is offered", str(command))
        manifest = self._store.manifests.get(command.resume)
        if manifest is not None:
            same = list(manifest.lineage) == self._history
            _expect(same, "7 history is contiguous", f"{manifest.lineage} is not {self._history}")
        self._verified.clear()

    def commits(self, command: do.Commit) -> tuple[int, ...]:
        """Judge a commit by what the workers really did; returns the generations that made its history."""
        group = self._engine.group
        mine = group is not None and group.generation == command.generation
        if group is None or not mine:
            raise Violation("1 a committed checkpoint is complete", f"{command} of a group that is gone")
        index, invariant = command.index, "1 a committed checkpoint is complete"
        _expect(group.reported_by_all(index), invariant, f"not all ranks have made report {index}: {command}")
        _expect(set(command.ranks) == group.files.get(index, set()), invariant, f"ranks are missing: {command}")
        sealed = all((rank, index) in group.sealed for rank in command.ranks)
        _expect(sealed and index not in group.discarded, invariant, f"shards are not on disk: {command}")
        _expect(command.world_size == len(group.workers), "5 the world is what was asked for", str(command))
        _expect(command.report == group.base + index + 1, "7 history is contiguous", str(command))
        self._committing.add((command.generation, index))
        return tuple(self._history[: command.report])

    def discards(self, command: do.Discard) -> None:
        busy = (command.generation, command.index) in self._committing
        _expect(not busy, "1 a committed checkpoint is complete", f"{command} while it is being committed")

    def validates(self, id: str) -> None:
        _expect(id not in self._store.validating, "a checkpoint is validated once", f"{id} is being validated already")


def _expect(lawful: bool, invariant: str, what: str) -> None:
    if not lawful:
        raise Violation(invariant, what)


def _agree(live: RunState, replayed: RunState, when: str) -> None:
    for field in DURABLE_FIELDS:
        ours, theirs = getattr(live, field), getattr(replayed, field)
        # Text, because a score that is not a number differs from itself.
        if ours is not theirs and ours != theirs and repr(ours) != repr(theirs):
            raise Violation("live and replayed state agree", f"{field} after {when}: {ours} live, {theirs} replayed")


def _kind(event: ev.Event) -> FailureKind:
    return classify(event.evidence) if isinstance(event, ev.WorkerFailed) else FailureKind.STORAGE


def _held_by(
    record: CheckpointRecord, records: list[CheckpointRecord], spec: RunSpec, pinned: str | None
) -> str | None:
    """Why retention must keep the record; None if it may go."""
    if spec.num_to_keep is None:
        return "kept with all the others"
    if record.id == pinned:
        return "what the group resumed from"
    if record.validation is ValidationStatus.PENDING:
        return "being validated"
    if all(other.report <= record.report for other in records):
        return "the newest"
    better = sum(_is_better(other, record, spec) for other in records if other is not record)
    return "among the best" if better < spec.num_to_keep else None


def _is_better(one: CheckpointRecord, other: CheckpointRecord, spec: RunSpec) -> bool:
    if spec.scored:
        ours = -math.inf if one.score is None or math.isnan(one.score) else one.score
        theirs = -math.inf if other.score is None or math.isnan(other.score) else other.score
        if spec.score_order == "min":
            ours, theirs = (-x if x != -math.inf else x for x in (ours, theirs))
        if ours != theirs:
            return ours > theirs
    return one.report > other.report


def _reachable() -> frozenset[tuple[Phase, Phase]]:
    """From which phase to which one step may lead: along the table, as far as one event can carry."""
    edges = {(was, now) for (was, _), now in run.TRANSITIONS.items()}
    found = set(edges)
    for _ in range(LONGEST_CHAIN - 1):
        found |= {(a, d) for a, b in found for c, d in edges if b is c}
    return frozenset(found)


_REACHABLE = _reachable()
