"""A store in memory with one worker thread: what it was asked for first is done first, and its answers come later.

Manifests outlive the driver. What was asked for and not yet done does not. Where the store is far away the files are
there before the manifest, it can be away for a while, and what is removed is removed by a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from msgspec import Struct

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run.state import CheckpointRecord, ValidationStatus

from .clock import Clock
from .fake_group import Group
from .schedule import Faults, Workload

PATIENCE_S = 3.0  # how long storage may be away before a request has failed


class Manifest(Struct):
    record: CheckpointRecord
    generation: int
    index: int
    lineage: tuple[int, ...]  # the generation that made each report up to this one
    epoch: int
    damaged: bool = False


class FakeStore:
    def __init__(self, clock: Clock, rng: Random, faults: Faults, workload: Workload) -> None:
        self.manifests: dict[str, Manifest] = {}
        self.files: dict[str, set[tuple[int, int]]] = {}  # id -> (generation, rank) of what was uploaded
        self.quarantined: set[str] = set()
        self.validating: set[str] = set()
        self.deliver: Callable[[ev.Event], None]
        self.die_here: Callable[[], None]
        self.refused: Callable[[str, str], None]
        self._clock, self._rng, self._faults, self._workload = clock, rng, faults, workload
        self._busy_until = 0.0
        self._away_until = 0.0
        self._merged: set[tuple[int, int]] = set()  # (generation, index) of what was moved into a checkpoint

    def driver_died(self) -> None:
        self.validating.clear()
        self._busy_until = 0.0

    def ask(self, work: Callable[..., None], *args: object) -> None:
        """Queue work for the storage thread."""
        slow = 8.0 if self._rng.random() < 0.1 else 0.2
        self._busy_until = max(self._busy_until, self._clock.now) + slow * self._rng.random()
        self._clock.at(self._busy_until, work, *args)

    def has_shard(self, group: Group, index: int) -> bool:
        """Whether what the ranks staged for that report still lies where they staged it."""
        return group.has_staged(index) and index not in group.gathered and (group.generation, index) not in self._merged

    def put(self, id: str, generation: int, rank: int) -> None:
        self.files.setdefault(id, set()).add((generation, rank))

    def is_away(self) -> bool:
        if self._faults.hit("storage away"):
            self._faults.count("storage away")
            self._away_until = self._clock.now + self._rng.random() * 40.0
        return self._clock.now < self._away_until

    def _answer(self, event: ev.Event) -> None:
        self.die_here()
        self._clock.after(self._rng.random() * 0.3, self.deliver, event)

    def commit(self, command: do.Commit, lineage: tuple[int, ...], epoch: int) -> None:
        there = self.manifests.get(command.id)
        other = there is not None and (there.generation, there.index) != (command.generation, command.index)
        if other or command.id in self.quarantined:
            self.refused(command.id, "a checkpoint of that name is there already")
        if self._faults.hit("commit failure"):
            self._faults.count("commit failure")
            self._answer(ev.CommitFailed(command.generation, command.index, "no space is left"))
            return
        record = self.add_manifest(command, lineage, epoch)
        if self._faults.hit("commit failure after the manifest"):
            self._faults.count("commit failure after the manifest")
            self._answer(ev.CommitFailed(command.generation, command.index, "no space is left"))
        else:
            self._answer(ev.Committed(record, command.generation, command.index))
        self.maybe_damage()

    def commit_far_away(self, command: do.Commit, lineage: tuple[int, ...], epoch: int) -> None:
        """The same, where storage may be out of reach, or the reply may be lost."""
        out_of_reach = ev.UploadFailed(command.generation, command.index, "storage is away")
        lost_reply = "commit out of reach after the manifest"
        if self._faults.hit("commit out of reach"):
            self._faults.count("commit out of reach")
            self._clock.after(PATIENCE_S, self._answer, out_of_reach)
        elif self.is_away():
            self._clock.after(PATIENCE_S, self._answer, out_of_reach)
        elif self._faults.hit(lost_reply):
            self._faults.count(lost_reply)
            self.add_manifest(command, lineage, epoch)
            self._clock.after(PATIENCE_S, self._answer, out_of_reach)
        else:
            self.commit(command, lineage, epoch)

    def add_manifest(self, command: do.Commit | do.Gather, lineage: tuple[int, ...], epoch: int) -> CheckpointRecord:
        if command.id in self.manifests:
            return self.manifests[command.id].record
        score = self._workload.scores[command.report] if command.report < len(self._workload.scores) else None
        status = ValidationStatus.PENDING if command.validate else ValidationStatus.NONE
        record = CheckpointRecord(command.id, command.report, score, status)
        self.manifests[command.id] = Manifest(record, command.generation, command.index, lineage, epoch)
        self._merged.add((command.generation, command.index))
        return record

    def maybe_damage(self) -> None:
        if self.manifests and self._faults.hit("damaged checkpoint"):
            self._faults.count("damaged checkpoint")
            self.manifests[self._any_id()].damaged = True
        if self.manifests and self._faults.hit("lost manifest"):
            self._faults.count("lost manifest")
            del self.manifests[self._any_id()]

    def _any_id(self) -> str:
        newest = max(self.manifests, key=lambda id: self.manifests[id].record.report)
        return newest if self._rng.random() < 0.6 else self._rng.choice(sorted(self.manifests))

    def verify(self, id: str) -> None:
        self.maybe_damage()
        manifest = self.manifests.get(id)
        if manifest is None or manifest.damaged:
            self._answer(ev.Damaged(id, "it is gone" if manifest is None else "a digest differs"))
        else:
            self._answer(ev.Verified(id))

    def delete(self, id: str) -> None:
        self.manifests.pop(id, None)
        self.files.pop(id, None)

    def quarantine(self, id: str) -> None:
        self.manifests.pop(id, None)
        self.quarantined.add(id)

    def validate(self, id: str) -> None:
        """Validation has its own workers: it neither waits for the storage thread nor holds it up."""
        self.validating.add(id)
        status = self._rng.choice((ValidationStatus.DONE, ValidationStatus.TIMEOUT, ValidationStatus.FAILED))
        score = self._rng.choice((None, 0.5, 3.0, float("nan"))) if status is ValidationStatus.DONE else None
        self._clock.after(self._rng.random() * 4.0, self._validated, ev.Validated(id, status, score))

    def _validated(self, event: ev.Validated) -> None:
        self.validating.discard(event.id)
        self.deliver(event)
