"""What must hold after every step. The judge counts independently of the machine.

It checks durable state on a replay, which takes each record as it is journalled. The live state must agree with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from msgspec import structs

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import step, timers
from holdfast.core.run.state import CheckpointRecord, Durable, Outcome, RunState
from holdfast.core.run.timers import Timer
from holdfast.runs.past import Past
from holdfast.store.manifests import Manifest

from .budget_invariants import Budgets
from .fates import Fates, Violation, expect
from .live_invariants import LiveJudge
from .memory_invariants import MemoryJudge
from .phase_invariants import judge_phase
from .retention_invariants import held_by
from .room import Room
from .simulated_attempt import SimulatedAttempt, Status, Worker, rank_of
from .simulated_storage import SimulatedStorage
from .simulated_workers import Workers


class Judge:
    def __init__(self, workers: Workers, store: SimulatedStorage) -> None:
        self._memory, self._live = MemoryJudge(workers, workers.memory), LiveJudge(workers)
        self.shadow = Durable()  # the replay of the journal so far
        self._workers, self._store, self.fates = workers, store, Fates(workers)
        self._history: list[int] = []  # the attempt that made each report that survives
        self._verified: set[str] = set()
        self._validating: set[str] = set()
        self._budgets, self._room = Budgets(), Room(workers)
        self._attempt: ev.AttemptStarted | None = None  # the driver's last one
        self._asked_to_stop = False
        self._at_once = False
        self._resumed: tuple[int, int] | None = None  # by the last attempt, and still on its nodes
        self._agreed: tuple[Durable, Durable] | None = None  # the last live and replayed states that were compared

    def reported(self, attempt_number: int, report: int) -> None:
        if report > len(self._history) + 1:
            raise Violation("7 history is contiguous", f"report {report} follows {len(self._history)}")
        if report == len(self._history) + 1:
            self._history.append(attempt_number)

    def commit_refused(self, id: str, why: str) -> None:
        raise Violation("1 a committed checkpoint is never written into again", f"{id}: {why}")

    def recovered(self, state: Durable) -> None:
        _agree(state, self.shadow, "a replay of the whole journal")
        self._verified.clear()
        self._validating.clear()
        self._memory.driver_begins()
        self.fates.driver_begins()

    def journalled(self, event: ev.Event) -> None:
        before = self.shadow
        try:
            after = self.shadow = step.replay(before, event)
        except Exception as error:
            raise Violation("a replay never raises", f"{type(error).__name__}: {error} on {event}") from error
        over = before.outcome is not None and isinstance(event, ev.RunEnded | ev.AttemptStarted)
        expect(not over, "9 the run ends once", f"{event} after the run {before.outcome}")
        self._budgets.journalled(before, event, after)
        if after.failure is not None and after.failure.instead and after.failure is not before.failure:
            self._workers.count("a failure was laid to the loss of a node")
        self._judge_checkpoints(before, event, after)
        if isinstance(event, ev.DriverStarted):
            expect(event.epoch > before.epoch, "3 one driver", f"epoch {event.epoch} after {before.epoch}")
            self._attempt, self._asked_to_stop, self._at_once = None, False, False
        elif isinstance(event, ev.AttemptStarted):
            self._judge_start(before, event)
        elif isinstance(event, ev.WorkerFailed) and self._workers.attempt is not None:
            where = self._workers.node_of(event.attempt_number, event.rank)
            expect(event.node == where, "failures are counted by node", f"{event} was on {where}")
            hung = event.evidence.stalled_s is not None and not event.evidence.message
            waits = hung and self.fates.waits(event.attempt_number, event.rank)
            stuck = any(w.stuck for w in self._workers.attempt.workers)
            expect(stuck or not waits, "waiting for storage is not a hang", str(event))
            watched = before.spec.hang_timeout_s or (60.0 if before.spec.learns_hangs else math.inf)
            early = hung and event.evidence.started and (event.evidence.stalled_s or 0.0) < watched
            expect(not early, "a hang is as long as the watch that is set", str(event))
        elif isinstance(event, ev.StopAsked):
            self._asked_to_stop = True
            self._at_once = self._at_once or event.at_once
        elif isinstance(event, ev.HandedOver):
            self._room.handed_over(event, self.fates)
        elif isinstance(event, ev.RunEnded):
            self._judge_end(event, after)
        elif isinstance(event, ev.ShardFailed | ev.CommitFailed):
            self.fates.refuse((event.attempt_number, event.index))
        elif isinstance(event, ev.Committed):
            self.fates.settle((event.attempt_number, event.index), committed=True)
            self._judge_branch(event.record)

    def _judge_branch(self, record: CheckpointRecord) -> None:
        """Only checkpoints of the history that the run resumes from are committed, never abandoned ones."""
        manifest = self._store.manifests.get(record.id)
        if manifest is not None:
            same = list(manifest.lineage) == self._history[: record.report]
            expect(same, "7 history is contiguous", f"{record.id}: {manifest.lineage} is not in {self._history}")

    def stepped(self, before: RunState, event: ev.Event, after: RunState, commands: list[do.Command]) -> None:
        judge_phase(before, event, after)
        agreed = self._agreed
        if agreed is None or agreed[0] is not after.durable or agreed[1] is not self.shadow:
            _agree(after.durable, self.shadow, type(event).__name__)
            self._agreed = (after.durable, self.shadow)
        for one in event.events if type(event) is ev.Several else (event,):
            self.fates.learn(one, after, newest=len(self._history))
            self._room.stepped(one, after)
        self._memory.stepped(event, after, self._history)
        self._live.stepped(before, event, after, commands)
        if isinstance(event, ev.Verified):
            self._verified.add(event.id)
        elif isinstance(event, ev.StagedLost | ev.Damaged):
            self._verified.discard(event.id)
        elif isinstance(event, ev.Validated):
            self._validating.discard(event.id)
        for command in commands:
            judge = _COMMANDS.get(type(command))
            if judge is not None:
                judge(self, command, before, after)

    def _judge_delete(self, command: do.Delete, before: RunState, after: RunState) -> None:
        """Retention may delete the checkpoint that an attempt resumed from only when its processes have exited. The
        judge looks at the processes."""
        held = any(c.id == command.id for c in after.checkpoints)
        expect(not held, "2 nothing committed is lost", f"{command.id} is deleted and still offered")
        attempt, was_committed = self._workers.attempt, any(c.id == command.id for c in before.checkpoints)
        read = attempt is not None and attempt.resume == command.id and self._workers.attempt_lives
        broken = read and was_committed and not self._at_once
        expect(not broken, "2 nothing is deleted that living workers read", str(command))

    def _judge_quarantine(self, command: do.Quarantine, *_: RunState) -> None:
        manifest = self._store.manifests.get(command.id)
        good = manifest is not None and not manifest.damaged
        expect(not good, "2 nothing committed is lost", f"{command.id} is set aside, and is good")

    def _judge_validate(self, command: do.Validate, *_: RunState) -> None:
        expect(command.id not in self._validating, "a checkpoint is validated once", str(command))
        self._validating.add(command.id)

    def _judge_timer(self, command: do.SetTimer, *_: RunState) -> None:
        if command.timer == timers.HANG:
            expect(command.after_s > 0, "the watch for hangs does not burn a core", str(command))

    def _judge_discard(self, command: do.Discard, _before: RunState, after: RunState) -> None:
        self.fates.remove(command)
        if not self._at_once:
            self.fates.discard(command, after, self._attempt.resume if self._attempt is not None else None)

    def _judge_checkpoints(self, before: Durable, event: ev.Event, after: Durable) -> None:
        if after.checkpoints is before.checkpoints:
            return
        had, has = {c.id: c for c in before.checkpoints}, {c.id: c for c in after.checkpoints}
        if isinstance(event, ev.Committed):
            again = event.record.id in before.damaged
            expect(not again, "1 what was damaged is never offered again", event.record.id)
            had[event.record.id] = event.record
        elif isinstance(event, ev.Validated) and event.id in had:
            had[event.id] = structs.replace(had[event.id], validation=event.status)
            if event.score is not None:
                had[event.id] = structs.replace(had[event.id], score=event.score)
        elif isinstance(event, ev.Damaged):
            had.pop(event.id, None)
        invented = has.keys() - had.keys()
        expect(not invented, "1 only what is committed is offered", f"{invented} came from nowhere")
        pinned = self._attempt.resume if self._attempt is not None and after.outcome is None else None
        pinned = event.resume if isinstance(event, ev.AttemptStarted) else pinned
        for id in had.keys() - has.keys():
            held = held_by(had[id], list(had.values()), after.spec, pinned)
            expect(held is None, "2 nothing committed is lost", f"{id} was dropped, and is {held}")
        if isinstance(event, ev.Committed | ev.AttemptStarted | ev.RunEnded):
            records = list(has.values())
            spare = [c.id for c in records if held_by(c, records, after.spec, pinned) is None]
            expect(not spare, "2 retention keeps no more than it must", f"{spare} could go")

    def _judge_start(self, before: Durable, event: ev.AttemptStarted) -> None:
        offers: list[tuple[str | None, int]] = [(None, 0), *((c.id, c.report) for c in before.checkpoints)]
        if before.spec.nodes_hold_files:
            offers += self.fates.offers()
        wanted = max(offers, key=lambda offer: offer[1])
        latest = self._memory.starts(event, wanted, self._history) or (event.resume, event.base) == wanted
        expect(latest, "2 a run resumes from its newest checkpoint", f"{event} where {wanted} is newest")
        self._budgets.starts(event, before, again=self._attempt is not None)
        self._room.starts(event, before, self.fates)
        if self._attempt is not None:
            self._judge_left_behind(at_the_end=False)
        expect(not self._asked_to_stop, "9 the run ends", "an attempt starts after a stop was asked for")
        expect(
            event.attempt_number > before.attempt_number, "4 attempts are new", f"{event} after {before.attempt_number}"
        )
        self._attempt = event
        del self._history[event.base :]
        self.fates.attempt_begins(event.attempt_number, self._history)

    def _judge_left_behind(self, at_the_end: bool) -> None:
        """Checkpoints that the attempts completed are durable before the run continues, unless storage failed on them.
        If storage is remote, they need only be hashed before the next attempt starts. At the end, they are durable
        too."""
        for where in self.fates.unsettled():
            attempt = self._workers.attempts[where[0]]
            on_its_way = self.shadow.spec.nodes_hold_files and not at_the_end and attempt.is_whole(where[1])
            kept = on_its_way or (self._budgets.cut_off and where[1] not in attempt.discarded)
            expect(kept, "2 what was reported by all is made durable", f"{where} is left behind")

    def _judge_end(self, event: ev.RunEnded, after: Durable) -> None:
        if not self._at_once:
            gone = not self._workers.attempt_lives
            expect(gone, "4 no process outlives its run", f"attempt {after.attempt_number} lives at the end")
            self._judge_left_behind(at_the_end=True)
        if event.outcome is Outcome.FINISHED:
            attempt = self._workers.attempt
            done = attempt is not None and all(w.status is Status.RETURNED for w in attempt.workers)
            expect(done, "9 finished means that every rank returned", f"attempt {after.attempt_number} did not")
            self._judge_result()

    def _judge_result(self) -> None:
        """A finished run has the last checkpoint that it made."""
        attempt = self._workers.attempt
        assert attempt is not None
        files = [index for index in attempt.files if not any(index in w.skipped for w in attempt.workers)]
        last = (attempt.attempt_number, max(files)) if files else self.fates.owner(attempt.resume)
        had = last is None or not self.fates.is_of_this_driver(last) or self.fates.is_committed(last)
        expect(had, "2 a finished run has its last checkpoint", f"{last} was lost")

    def rests(self, state: RunState, waits_for: Callable[[Timer], bool]) -> None:
        """The driver has done everything that it was asked to do, and waits."""
        self.fates.rests(state, waits_for)
        self._room.rests(state, waits_for)
        self._live.rests(state, waits_for)

    def _judge_attempt_start(self, command: do.StartAttempt, *_: RunState) -> None:
        verified = command.resume is None or command.resume in self._verified
        expect(verified, "1 only what was verified is offered", str(command))
        self._verified.clear()
        alive = [
            w
            for g in self._workers.attempts.values()
            if g.attempt_number > command.attempt_number - 4
            for w in g.processes
        ]
        gone = not self._workers.attempt_lives and not any(worker.lives for worker in alive)
        expect(gone, "4 the old attempt is gone before the next starts", str(command))
        expect(command.attempt_number == self.shadow.attempt_number, "4 attempts are new", str(command))
        if command.resume is None:
            return
        manifest = self._store.manifests.get(command.resume)
        owner = self.fates.owner(command.resume)
        if manifest is not None or owner is not None:
            lineage = self.fates.lineage(owner) if owner is not None else ()
            lineage = manifest.lineage if manifest is not None else lineage
            same = list(lineage) == self._history
            expect(same, "7 history is contiguous", f"{lineage} is not {self._history}")

    def adopts(self, manifest: Manifest) -> None:
        """The driver commits a checkpoint of a dead driver, from its nodes. Judged by what the workers did."""
        attempt, invariant = self._workers.attempts[manifest.attempt_number], "1 a committed checkpoint is complete"
        made = all(w.has_made(manifest.index) for w in attempt.workers)
        expect(made, invariant, f"not all ranks have made report {manifest.index}: {manifest.id}")
        ranks = {rank_of(entry.path) for entry in manifest.files}
        expect(ranks == attempt.staged[manifest.index], invariant, f"{ranks} of {attempt.staged[manifest.index]}")
        refused = (manifest.attempt_number, manifest.index) in self.fates.given_up
        expect(not refused, "2 what was given up stays so", f"{manifest.id} is adopted")
        there = {rank for _, rank in self._store.files.get(manifest.id, set())}
        expect(ranks == there, invariant, f"{there} of {ranks} in storage: {manifest.id}")
        self.fates.name(manifest.id, (manifest.attempt_number, manifest.index), self.shadow.spec.nodes_hold_files)

    def takes_up(self, command: do.Commit) -> None:
        """The same on a disk that the driver reaches. It includes reports that perhaps no driver received."""
        attempt, invariant = self._workers.attempts[command.attempt_number], "1 a committed checkpoint is complete"
        made = all(w.has_made(command.index) for w in attempt.workers)
        expect(made, invariant, f"not all ranks have made report {command.index}: {command}")
        expect(set(command.ranks) == attempt.staged[command.index], invariant, f"ranks are missing: {command}")
        there = not any(attempt.lacks_shard(attempt.workers[rank], command.index) for rank in command.ranks)
        expect(there, invariant, f"shards are not on disk: {command}")
        expect(command.report == attempt.base + command.index + 1, "7 history is contiguous", str(command))
        self._judge_name(command)

    def _judge_name(self, command: do.Commit) -> None:
        free = command.id not in self._store.manifests
        expect(free, "1 a committed checkpoint is never written into again", str(command))
        self.fates.name(command.id, (command.attempt_number, command.index), self.shadow.spec.nodes_hold_files)

    def expects(self, past: Past) -> None:
        """A driver starts. The checkpoint that the last attempt resumed from is in storage or still on its nodes."""
        self._resumed = None
        attempt = (
            self._workers.attempts.get(past.last_attempt.attempt_number) if past.last_attempt is not None else None
        )
        where = self.fates.owner(attempt.resume) if attempt is not None else None
        if attempt is None or where is None or where in past.given_up or attempt.resume in past.state.damaged:
            return
        homes = [
            self._workers.attempts[where[0]].workers[rank] for rank in self._workers.attempts[where[0]].staged[where[1]]
        ]
        if past.state.outcome is None and all(attempt.resume in worker.node.machine.unsaved for worker in homes):
            self._resumed = where

    def _judge_resumed(self, newest: int, is_reachable: Callable[[Worker], bool]) -> None:
        if self._resumed is None:
            return
        attempt_number, index = self._resumed
        attempt = self._workers.attempts[attempt_number]
        here = all(is_reachable(attempt.workers[rank]) for rank in attempt.staged[index])
        if here and index not in attempt.lost:
            safe = newest >= self.fates.report(self._resumed)
            expect(safe, "2 a report that returned on all ranks survives", f"{self._resumed}, which was resumed from")

    def took_up(self, past: Past, state: Durable, is_reachable: Callable[[Worker], bool]) -> None:
        """A driver starts. Checkpoints that all ranks of the last attempt reported are safe, and so is the one that it
        resumed from, provided that the nodes that hold them joined in time."""
        newest = state.newest.report if state.newest is not None else 0
        self._judge_resumed(newest, is_reachable)
        attempt = (
            self._workers.attempts.get(past.last_attempt.attempt_number) if past.last_attempt is not None else None
        )
        if attempt is None or past.last_attempt is None or len(attempt.workers) < past.last_attempt.world_size:
            return  # the driver was killed before it had started all ranks
        here = all(is_reachable(worker) and not worker.log_is_lost for worker in attempt.workers)
        if past.state.spec.nodes_hold_files and not here:
            return
        for index in attempt.staged:
            made = all(w.has_made(index) for w in attempt.workers)
            lacks = any(attempt.lacks_shard(attempt.workers[rank], index) for rank in attempt.staged[index])
            refused = (attempt.attempt_number, index) in past.given_up or index in attempt.unsealable | attempt.clashing
            if made and not refused and not lacks:
                safe = newest >= attempt.base + index + 1
                expect(
                    safe,
                    "2 a report that returned on all ranks survives",
                    f"report {index} of {attempt.attempt_number}",
                )

    def _judge_commit(self, command: do.Commit, *_: RunState) -> None:
        """Judge a commit by what the workers really did."""
        invariant = "1 a committed checkpoint is complete"
        attempt = self._judge_whole(command)
        if self.shadow.spec.nodes_hold_files:
            there = self._store.files.get(command.id, set())
            uploaded = there == {(command.attempt_number, rank) for rank in command.ranks}
            expect(uploaded, invariant, f"{command} with {there} in storage")
        else:
            expect(attempt is self._workers.attempt, invariant, f"{command} of an attempt that is gone")
            expect(command.index not in attempt.discarded, invariant, f"shards are not on disk: {command}")
        self.fates.commit(command)

    def _judge_whole(self, command: do.Gather | do.Commit) -> SimulatedAttempt:
        attempt = self._workers.attempts.get(command.attempt_number)
        index, invariant = command.index, "1 a committed checkpoint is complete"
        if attempt is None or not self.fates.is_of_this_driver((command.attempt_number, index)):
            raise Violation(invariant, f"{command} of an attempt that is gone")
        expect(attempt.reported_by_all(index), invariant, f"not all ranks have made report {index}: {command}")
        expect(set(command.ranks) == attempt.files.get(index, set()), invariant, f"ranks are missing: {command}")
        expect(attempt.is_whole(index), invariant, f"shards are not on disk: {command}")
        expect(command.world_size == len(attempt.workers), "5 the world is what was asked for", str(command))
        expect(command.report == attempt.base + index + 1, "7 history is contiguous", str(command))
        return attempt


_COMMANDS: dict[type[do.Command], Callable[[Judge, Any, RunState, RunState], None]] = {
    do.Delete: Judge._judge_delete,
    do.Quarantine: Judge._judge_quarantine,
    do.StartAttempt: Judge._judge_attempt_start,
    do.Upload: lambda judge, command, _, after: judge.fates.upload(command, after),
    do.Gather: lambda judge, command, *_: judge._judge_whole(command),
    do.Commit: Judge._judge_commit,
    do.Validate: Judge._judge_validate,
    do.SetTimer: Judge._judge_timer,
    do.Discard: Judge._judge_discard,
}


def _agree(live: Durable, replayed: Durable, when: str) -> None:
    if live == replayed:
        return
    for field in Durable.__struct_fields__:
        ours, theirs = getattr(live, field), getattr(replayed, field)
        # Compare as text, because a NaN score differs from itself.
        if ours is not theirs and ours != theirs and repr(ours) != repr(theirs):
            raise Violation("live and replayed state agree", f"{field} after {when}: {ours} live, {theirs} replayed")
