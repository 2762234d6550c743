"""A run's machine under test: it is fed back what it decides, and its journal is kept for a restart."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, TypeVar

from holdfast.core.failures import Evidence
from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import step
from holdfast.core.run.state import CheckpointRecord, Durable, Phase, RunSpec, RunState, ValidationStatus

C = TypeVar("C", bound=do.Command)
CRASH = Evidence(signal=9)


class Machine:
    def __init__(self, journal: Iterable[ev.Event] = (), **limits: Any) -> None:
        self.spec = RunSpec(**{"num_workers": 2, "max_failures": 3, **limits})
        self.journal = list(journal)
        self.state = RunState(functools.reduce(step.replay, self.journal, Durable()))
        self.now = 0.0

    def feed(self, *events: ev.Event) -> list[do.Command]:
        """Returns what was asked for by these events, without the decisions, which are fed back."""
        asked: list[do.Command] = []
        for event in events:
            if event.durable:
                self.journal.append(event)
            self.state, commands, reason = step.step(self.state, event, self.now)
            assert reason
            for command in commands:
                if isinstance(command, do.Decide):
                    asked += self.feed(command.event)
                elif isinstance(command, do.DumpStacks):  # taken at once
                    asked += [command, *self.feed(ev.StacksTaken(command.attempt_number))]
                else:
                    asked.append(command)
        return asked

    def start(self, epoch: int = 1) -> list[do.Command]:
        return self.feed(ev.DriverStarted(epoch, self.spec))

    def restart(self) -> Machine:
        """A new driver that has replayed the journal, and has not begun yet."""
        fresh = Machine(self.journal)
        fresh.spec = self.spec
        return fresh

    def ready(self) -> None:
        self.feed(*(ev.WorkerReady(self.attempt_number, rank) for rank in range(len(self.state.ranks))))

    def training(self) -> Machine:
        self.start()
        self.ready()
        assert self.state.phase is Phase.RUNNING
        return self

    def stage(self, index: int, *ranks: int, **options: Any) -> None:
        self.feed(*(ev.ShardStaged(self.attempt_number, rank, index, **options) for rank in ranks))

    def seal(self, index: int, *ranks: int) -> list[do.Command]:
        return self.feed(*(ev.ShardSealed(self.attempt_number, rank, index) for rank in ranks))

    def upload(self, index: int) -> list[do.Command]:
        """All ranks bring files, they are hashed, and they arrive in remote storage."""
        everyone = range(len(self.state.ranks))
        self.stage(index, *everyone)
        return self.seal(index, *everyone) + self.uploaded(index)

    def uploaded(self, index: int, attempt_number: int | None = None) -> list[do.Command]:
        ranks = range(self.state.durable.attempt_size)
        return self.feed(*(ev.ShardUploaded(attempt_number or self.attempt_number, rank, index) for rank in ranks))

    def commit(self, index: int, score: float | None = None) -> list[do.Command]:
        """All ranks bring files, and they become durable."""
        everyone = range(len(self.state.ranks))
        self.stage(index, *everyone)
        command = only(do.Commit, self.seal(index, *everyone))
        return self.committed(command, score)

    def committed(self, command: do.Commit, score: float | None = None) -> list[do.Command]:
        status = ValidationStatus.PENDING if command.validate else ValidationStatus.NONE
        record = CheckpointRecord(command.id, command.report, score, status)
        return self.feed(ev.Committed(record, command.attempt_number, command.index))

    def fail(self, rank: int = 0, evidence: Evidence = CRASH) -> list[do.Command]:
        return self.feed(ev.WorkerFailed(self.attempt_number, rank, evidence))

    def gone(self) -> list[do.Command]:
        return self.feed(ev.AttemptGone(self.attempt_number))

    def all_return(self) -> list[do.Command]:
        return self.feed(*(ev.WorkerReturned(self.attempt_number, rank) for rank in range(len(self.state.ranks))))

    @property
    def attempt_number(self) -> int:
        return self.state.attempt_number

    @property
    def ids(self) -> list[str]:
        return [c.id for c in self.state.checkpoints]


def every(kind: type[C], commands: Iterable[do.Command]) -> list[C]:
    return [command for command in commands if isinstance(command, kind)]


def only(kind: type[C], commands: Iterable[do.Command]) -> C:
    found = every(kind, commands)
    assert len(found) == 1, f"{kind.__name__}: {found}"
    return found[0]
