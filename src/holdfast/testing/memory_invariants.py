"""What must be true of memory as a tier of recovery. The judge knows what workers did, and counts independently."""

from __future__ import annotations

from holdfast.core.run import events as ev
from holdfast.core.run.state import RunState, Snapshot, Tier

from .fates import Violation, expect
from .simulated_memory import SimulatedMemory
from .simulated_workers import Workers

_COMPLETE = "10 a snapshot is of a step that every rank has completed"
_STAYS = "10 of the newest complete snapshot no copy is overwritten"
_MOVES = "10 another number of workers resumes only from what fits it"
_NEWEST = "10 a run resumes from the newest state that it has"


class MemoryJudge:
    def __init__(self, workers: Workers, memory: SimulatedMemory) -> None:
        self._workers, self._memory = workers, memory
        self._newest: Snapshot | None = None  # snapshots that the machine may use
        self._lineages: dict[tuple[int, int], list[int]] = {}  # the history when it was taken

    def driver_begins(self) -> None:
        """The driver's nodes start with it, with empty memory."""
        self._newest = None

    def stepped(self, event: ev.Event, after: RunState, history: list[int]) -> None:
        lacking = self._memory.lacking
        if lacking:
            raise Violation("10 an attempt finds the snapshot that it resumes from", str(lacking))
        expect(not self._memory.overwritten, _STAYS, str(self._memory.overwritten))
        if isinstance(event, ev.SnapshotTaken):
            self._taken(event.snapshot, history)
            if after.snapshot == event.snapshot:
                self._newest = event.snapshot
        elif isinstance(event, ev.SnapshotLost):
            self._lost(event)

    def _lost(self, event: ev.SnapshotLost) -> None:
        if self._newest is not None and (event.attempt_number, event.step) == _which(self._newest):
            self._newest = event.instead
            self._workers.count("a snapshot was lost with its nodes")

    def _taken(self, snapshot: Snapshot, history: list[int]) -> None:
        self._workers.count("a snapshot was complete on all ranks")
        attempt = self._workers.attempts[snapshot.attempt_number]
        reports = snapshot.report - attempt.base
        for worker in attempt.workers:
            written = self._memory.written.get((snapshot.attempt_number, worker.rank, snapshot.step))
            expect(written == reports, _COMPLETE, f"rank {worker.rank} has {written} of {snapshot}")
        expect(len(attempt.workers) == snapshot.world_size, _COMPLETE, str(snapshot))
        expect(not snapshot.moves or self._memory.moves or snapshot.world_size == 1, _MOVES, str(snapshot))
        self._lineages[_which(snapshot)] = history[: snapshot.report]

    def starts(self, event: ev.AttemptStarted, wanted: tuple[str | None, int], history: list[int]) -> bool:
        """Whether the attempt starts from memory. ``wanted``: the newest checkpoint and its report."""
        newest, self._newest = self._newest, None
        if event.snapshot is None:
            usable = newest is not None and newest.report >= wanted[1]
            usable = usable and newest is not None and (newest.moves or newest.world_size == event.world_size)
            expect(not usable, _NEWEST, f"{event} where {newest} is in memory")
            expect(event.tier is (Tier.CHECKPOINT if event.resume else Tier.NONE), _NEWEST, str(event))
            return False
        expect(newest is not None and event.snapshot == _which(newest), _NEWEST, f"{event} where {newest} is newest")
        assert newest is not None
        expect(event.base == newest.report >= wanted[1], _NEWEST, f"{event} of {newest}, and {wanted} is there")
        fits = newest.moves or newest.world_size == event.world_size
        expect(fits, "5 the world is what was asked for", f"{event} of {newest}")
        lineage = self._lineages[event.snapshot]
        expect(history[: event.base] == lineage, "7 history is contiguous", f"{lineage} is not in {history}")
        self._newest = newest
        moved = event.tier is Tier.PEER
        self._workers.count("an attempt resumed from memory")
        if moved:
            self._workers.count("an attempt resumed from the memory of another node")
        return True


def _which(snapshot: Snapshot) -> tuple[int, int]:
    return snapshot.attempt_number, snapshot.step
