"""What became of every checkpoint that the workers saved, and what may happen to it on its way to storage.

All of it is counted from what the workers really did and from the machine's events, never from the machine's memory.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import timers
from holdfast.core.run.state import RunState
from holdfast.core.run.timers import Timer

from .simulated_attempt import Worker
from .simulated_workers import Workers

MOST_UPLOADS = 2
Where = tuple[int, int]  # a checkpoint, by the attempt and the index of its report
_TELLING = {ev.ShardStaged, ev.ShardUploaded, ev.UploadFailed, ev.StorageLags, ev.TimerFired, ev.StagedLost}


class Violation(Exception):
    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant, self.what = invariant, what


def expect(lawful: bool, invariant: str, what: str) -> None:
    if not lawful:
        raise Violation(invariant, what)


class Fates:
    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._roots: dict[int, tuple[int, ...]] = {}  # the history that each attempt started from
        self._owners: dict[str, Where] = {}  # by id
        self._attempt_numbers: list[int] = []  # the driver's attempts
        self._committed: set[Where] = set()
        self.given_up: set[Where] = set()  # by any driver
        self._settled: set[Where] = set()  # committed, refused by storage, lost or superseded
        self._awaited: set[Where] = set()  # by a worker
        self._waiters: set[tuple[int, int, int]] = set()  # attempt, index and rank of workers that said that they wait
        self._validated: set[Where] = set()
        self._uploading: dict[Where, set[int]] = {}  # the ranks whose files are missing so far
        self._ordered: dict[Where, set[int]] = {}  # the ranks whose upload was requested and not yet answered
        self._committing: set[Where] = set()
        self._synced = 0  # the newest report at the end of the last sync period

    def driver_begins(self) -> None:
        """Forget the pending work of an earlier driver, which was lost with it."""
        self._attempt_numbers.clear()
        for known in (self._committed, self._settled, self._awaited, self._validated, self._committing):
            known.clear()
        self._uploading.clear()
        self._ordered.clear()
        self._synced = 0

    def attempt_begins(self, attempt_number: int, history: list[int]) -> None:
        self._attempt_numbers.append(attempt_number)
        self._roots[attempt_number] = tuple(history)

    def is_of_this_driver(self, where: Where) -> bool:
        return where[0] in self._attempt_numbers

    def is_committed(self, where: Where) -> bool:
        return where in self._committed

    def is_lost(self, where: Where) -> bool:
        return where in self._settled and where not in self._committed

    def waits(self, attempt_number: int, rank: int) -> bool:
        """Whether the driver knows that the rank waits for storage."""
        waiting = self._workers.attempts[attempt_number].waiting
        return any((attempt_number, index, rank) in self._waiters for index, ws in waiting.items() if _has(ws, rank))

    def owner(self, id: str | None) -> Where | None:
        return self._owners.get(id or "")

    def report(self, where: Where) -> int:
        return len(self._roots[where[0]]) + where[1] + 1

    def lineage(self, where: Where) -> tuple[int, ...]:
        """For each report up to that one, the attempt that made it."""
        return self._roots[where[0]] + (where[0],) * (where[1] + 1)

    def unsettled(self) -> list[Where]:
        """The checkpoints that the driver's attempts completed, and those of them that are neither durable nor given
        up."""
        return [
            (attempt_number, index)
            for attempt_number in self._attempt_numbers
            if (attempt := self._workers.attempts.get(attempt_number)) is not None
            for index in sorted(attempt.files)
            if (attempt_number, index) not in self._settled and attempt.reported_by_all(index)
        ]

    def offers(self) -> list[tuple[str | None, int]]:
        """The checkpoints from which an attempt could start: ids and report numbers."""
        ids: dict[Where, str] = {where: id for id, where in self._owners.items()}
        return [(ids[where], self.report(where)) for where in self.unsettled()]

    def settle(self, where: Where, committed: bool = False) -> None:
        self._settled.add(where)
        self._committing.discard(where)
        self._uploading.pop(where, None)
        if committed:
            self._committed.add(where)

    def refuse(self, where: Where) -> None:
        """Storage has failed on this checkpoint: no driver may want it again."""
        self.settle(where)
        self.given_up.add(where)

    def learn(self, event: ev.Event, after: RunState, newest: int) -> None:
        """Process the machine's events. ``newest`` is the last report that any rank has made."""
        if type(event) not in _TELLING:
            return
        if isinstance(event, ev.ShardStaged):
            where = (event.attempt_number, event.index)
            if event.urgent:
                self._awaited.add(where)
                self._waiters.add((*where, event.rank))
            if event.validate:
                self._validated.add(where)
            if event.attempt_number == after.attempt_number and event.index in after.pending:
                self.name(after.pending[event.index].id, where, after.spec.nodes_hold_files)
        elif isinstance(event, ev.ShardUploaded):
            for open_ in (self._uploading, self._ordered):
                open_.get((event.attempt_number, event.index), set()).discard(event.rank)
        elif isinstance(event, ev.UploadFailed):
            self._ordered.get((event.attempt_number, event.index), set()).difference_update(event.ranks)
            if not event.ranks:
                self._committing.discard((event.attempt_number, event.index))
        elif _ends_the_sync_period(event):
            self._synced = newest
        elif isinstance(event, ev.StagedLost) and event.id not in {p.id for p in after.unsaved}:
            self._lose(self._owners.get(event.id))

    def name(self, id: str, where: Where, remote: bool) -> None:
        owner = self._owners.get(id, where)
        twice = remote and owner != where
        expect(not twice, "1 far away no name is used twice", f"{id} for {where}, and for {owner} before")
        self._owners[id] = where

    def _lose(self, where: Where | None) -> None:
        if where is None:
            return  # an earlier driver's, which has no name yet
        in_storage = where not in self._settled and self._uploading.get(where) == set()
        expect(not in_storage, "2 nothing whole is given up", f"{where} was lost when all of it was in storage")
        self.settle(where)

    def upload(self, command: do.Upload, after: RunState) -> None:
        where = (command.attempt_number, command.index)
        expect(where not in self._settled, "1 only what is wanted is uploaded", str(command))
        expect(self._owners[command.id] == where, "1 far away no name is used twice", str(command))
        there = {rank for p in after.unsaved if p.id == command.id for rank in p.uploaded}
        begun = where in self._uploading
        ordered = self._ordered.setdefault(where, set())
        expect(ordered.isdisjoint(command.ranks), "a part is uploaded once at a time", f"{command} beside {ordered}")
        ordered.update(command.ranks)
        self._uploading.setdefault(where, set()).update(set(command.ranks) - there)
        busy = [where for where, ranks in self._uploading.items() if ranks]
        expect(len(busy) <= MOST_UPLOADS, "few uploads at once", f"{busy}")
        report = self.report(where)
        awaited = any(other in self._awaited and self.report(other) >= report for other in self.unsettled())
        early = after.spec.sync_period_s > 0 and after.attempt_lives and report > self._synced and not awaited
        expect(begun or not early, "uploads wait for the end of the sync period", str(command))

    def rests(self, state: RunState, waits_for: Callable[[Timer], bool]) -> None:
        """Nothing waits for its upload without a reason: two uploads are running, or the sync period has not ended."""
        if not state.spec.nodes_hold_files or state.durable.cut_off or not (state.carried or state.pending):
            return
        whole = [p for p in state.unsaved if state.is_whole(p)]
        waiting = [p for p in whole if not p.uploading]
        if not waiting or sum(p.uploading and p.uploaded != p.staged for p in whole) >= MOST_UPLOADS:
            return
        awaited = any((p.attempt_number, p.index) in self._awaited for p in waiting)
        in_time = state.spec.sync_period_s > 0 and state.attempt_lives and waits_for(timers.SYNC) and not awaited
        expect(in_time, "what is whole does not wait without a reason", f"{waiting[0]}")

    def commit(self, command: do.Commit) -> None:
        where = (command.attempt_number, command.index)
        older = [other for other in self.unsettled() if self.report(other) < command.report]
        expect(not older, "commits are in the order of the reports", f"{command} before {older}")
        expect(where not in self._committing, "a commit is asked for once", str(command))
        self._committing.add(where)

    def discard(self, command: do.Discard, after: RunState, resumed: str | None) -> None:
        """No whole checkpoint is given up, unless a newer whole one supersedes it before its upload begins."""
        where, spec = (command.attempt_number, command.index), after.spec
        whole = self.unsettled()
        if where not in whole:
            return
        newer = sum(self.report(other) > self.report(where) for other in whole)
        wanted = where in self._awaited | self._validated or where in self._uploading or self.owner(resumed) == where
        may_go = spec.nodes_hold_files and spec.num_to_keep is not None and not spec.scored and not wanted
        lawful = may_go and newer >= max(1, spec.num_to_keep or 0)
        expect(lawful, "2 nothing whole is given up", f"{command} with {newer} newer ones")
        self._workers.count("a checkpoint was superseded before its upload")
        self.settle(where)

    def remove(self, command: do.Discard) -> None:
        busy = (command.attempt_number, command.index) in self._committing
        expect(not busy, "1 a committed checkpoint is complete", f"{command} while it is being committed")


def _has(workers: list[Worker], rank: int) -> bool:
    return any(worker.rank == rank for worker in workers)


def _ends_the_sync_period(event: ev.Event) -> bool:
    return event.stalled if isinstance(event, ev.StorageLags) else event == ev.TimerFired(timers.SYNC)
