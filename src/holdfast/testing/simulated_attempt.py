"""The real state of an attempt's workers and nodes: where each rank runs, what it did, which messages arrive."""

from __future__ import annotations

from collections import Counter
from enum import Enum
from functools import cache
from typing import Any

from holdfast.store import values
from holdfast.store.metrics import line
from holdfast.store.report_log import _RETURNED, RankReports, StagedReport, _staged_line
from holdfast.store.staging import FileEntry
from holdfast.wire.messages import Replicate
from holdfast.wire.worker_messages import Report

from .schedule import Workload

FILE_SIZE = 1 << 20  # bytes
VALIDATION = values.encode({})


class Status(Enum):
    STARTING = "starting"
    TRAINING = "training"
    RETURNED = "returned"
    DEAD = "dead"


class Death:
    """How a worker exits."""

    def __init__(
        self, raised: str = "", exit_code: int | None = None, signal: int | None = None, oom: bool = False
    ) -> None:
        self.raised, self.exit_code, self.signal, self.oom = raised, exit_code, signal, oom


OF_PEERS = (  # what a worker raises when the processes that it talks to have exited
    Death("RuntimeError: connection closed by peer"),
    Death(signal=6),
    Death(exit_code=1),
)


class Machine:
    """What survives agents and drivers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.unsaved: dict[str, bytes] = {}  # by id, the manifests of gathered checkpoints
        self.gathered: dict[str, tuple[int, int, list[int]]] = {}  # by id: attempt, index and ranks
        self.swept = 0  # attempts up to this one left no files

    def has_gathered(self, attempt_number: int, index: int) -> bool:
        return any(where[:2] == (attempt_number, index) for where in self.gathered.values())


class Node:
    """An agent on a machine, from one start of it to its end."""

    def __init__(self, id: str, room: float, machine: Machine) -> None:
        self.id, self.room, self.machine = id, room, machine
        self.lives = True
        self.is_known = False  # the driver knows that it is ready, and not that it is lost
        self.is_mute = False  # it cannot talk to other nodes
        self.draining = False
        self.stalled = False  # reports with files wait
        self.cut_until = 0.0  # infinite: no message arrives any more
        self.lost_at = 0.0  # when the driver learns of it
        self.orders: Counter[int] = Counter()  # to start processes, by attempt
        self.pieces: dict[tuple[str, int, int], str] = {}  # in memory: piece, attempt and step, and the sender
        self.replicate = Replicate([], False)

    def is_cut_off(self, now: float) -> bool:
        return self.lives and self.cut_until > now


class Worker:
    def __init__(self, rank: int, node: Node, local_rank: int = 0) -> None:
        self.rank, self.node, self.local_rank = rank, node, local_rank
        self.status = Status.STARTING
        self.reports = 0
        self.never_reports = False  # whether only rank 0 reports
        self.steps = 0  # that it made without a report
        self.stuck = False  # hangs forever, or stopped until it is continued
        self.unsent: list[Report] = []  # reports made and not sent yet
        self.frozen = False  # stopped: it does not even read messages
        self.heard_until = 0.0
        self.told = 0  # the reports that the driver receives
        self.is_silent = False  # none of its messages arrives any more
        self.is_logged = False  # the driver reads its reports from its log if its node is lost
        self.log_is_lost = False  # with its machine
        self.ends_at = 0.0  # exits by itself when it has outlived its driver
        self.notice_waits = False
        self.noticed = False  # it knows that its attempt is about to end
        self.handover_at: int | None = None
        self.is_parked = False  # until it knows where
        self.waits_at: int | None = None  # for the end, or for a later point
        self.written = self.kept = -1  # the last step that it has in memory, and the last that all ranks have there
        # Of one whose steps can be done again:
        self.standby = 0  # it waits for a rank: its number
        self.armed = False
        self.joins = 0  # it replaces a lost rank, and is not a member of the group yet
        self.process = 0  # the number of the replacement that it came with
        self.group = 0  # the number of the group that it is in; -1: none
        self.formed = 0  # the number of the last group that it was in
        self.done = 0  # steps, in this attempt
        self.entered: int | None = None  # the step in whose collective it is
        self.has_report = False  # the collective of a step that it has completed
        self.has_lost_peers = False
        self.meets = False  # it waits for all ranks to form their group again
        self.request = 0  # the number of its request for that
        self.answer: dict[str, Any] | None = None
        self.complete: tuple[int, int] | None = None  # the newest snapshot then; its memory is not overwritten
        self.told_before = 0  # reports that the rank had made, as the driver says
        self.made_before = 0  # and really
        self.skipped: frozenset[int] = frozenset()  # reports that no process of the rank made

    @property
    def lives(self) -> bool:
        return self.status is Status.TRAINING or self.status is Status.STARTING

    @property
    def made(self) -> int:
        """Reports of the rank."""
        return max(self.made_before, self.reports)

    def follow(self, before: Worker) -> None:
        """Take the place of another worker."""
        self.made_before, self.skipped, self.told = before.made, before.skipped, before.told
        self.log_is_lost = before.log_is_lost and before.node.machine is self.node.machine

    def begin(self, steps: int, reports: int, made: int) -> None:
        """Continue with the state of a survivor."""
        self.done, self.reports, self.told_before, self.joins = steps, reports, made, 0
        self.skipped = self.skipped.union(range(self.made_before, reports))

    def has_made(self, index: int) -> bool:
        """Whether this worker has nothing left to do for that report."""
        if index in self.skipped:
            return False
        return self.never_reports or self.made > index or self.status is Status.RETURNED

    def has_reported(self, index: int) -> bool:
        """Whether the driver receives that report sooner or later."""
        if self.is_silent and not self.is_logged and not self.never_reports:
            return self.told > index and index not in self.skipped
        return self.has_made(index)


class SimulatedAttempt:
    def __init__(self, attempt_number: int, base: int, resume: str | None) -> None:
        self.attempt_number, self.base, self.resume = attempt_number, base, resume
        self.workers: list[Worker] = []  # by rank
        self.others: list[Worker] = []  # standbys, and processes whose rank another process took
        self.staged: dict[int, set[int]] = {}  # index -> the ranks that saved files
        self.files: dict[int, set[int]] = {}  # those of them that the driver can learn of
        self.sealed: set[tuple[int, int]] = set()  # (rank, index)
        self.discarded: set[int] = set()
        self.gathered: set[int] = set()  # on one node at least
        self.merged: set[int] = set()  # files that were moved into a checkpoint on the shared disk
        self.lost: set[int] = set()  # files that the nodes no longer have
        self.unsealable: set[int] = set()  # what could not be hashed
        self.clashing: set[int] = set()  # ranks save files that do not fit together
        self.waiting: dict[int, list[Worker]] = {}  # index -> the ranks that wait until it is durable

    @property
    def processes(self) -> list[Worker]:
        return [*self.workers, *self.others] if self.others else self.workers

    def target(self, kind: str, which: int) -> Worker | None:
        """The target by number among the living ones: a worker, a standby, or any process of a node."""
        there = [w for w in self.processes if w.lives and w.node.lives]
        there = [w for w in there if (w.rank < 0) == (kind == "standby") or kind == "node"]
        return there[which % len(there)] if there else None

    def reported_by_all(self, index: int) -> bool:
        return all(worker.has_reported(index) for worker in self.workers)

    def is_whole(self, index: int) -> bool:
        return self.reported_by_all(index) and all((rank, index) in self.sealed for rank in self.files[index])

    def has_staged(self, index: int) -> bool:
        return index not in self.lost and index not in self.discarded

    def lacks_shard(self, worker: Worker, index: int) -> bool:
        """Whether the files that the rank staged for that report are not where it staged them any more."""
        gathered = worker.node.machine.has_gathered(self.attempt_number, index)
        return gathered or index in self.merged or not self.has_staged(index)

    def log_of(self, worker: Worker, workload: Workload) -> RankReports:
        """The log of the rank."""
        made = [index for index in range(worker.made) if index not in worker.skipped]
        lines = {index: report_line(index, workload.score(self.base + index + 1)) for index in made}
        staged = {}
        for index in lines:
            number = self.base + index + 1
            if workload.has_files(worker.rank, number):
                files = [FileEntry(path, size, "") for path, size, _, _ in files_of(self, worker.rank, index)]
                staged[index] = StagedReport(
                    index, files, workload.name(number), {} if workload.validates(number) else None
                )
        return RankReports(lines, staged, worker.status is Status.RETURNED)


def files_of(attempt: SimulatedAttempt, rank: int, index: int) -> list[tuple[str, int, str, str]]:
    files = [(f"rank-{rank}", FILE_SIZE, "00", "")]
    if index in attempt.clashing:
        files.append(("same-0" if rank == 0 else f"same-0/below-{rank}", 1, "00", ""))
    return files


def rank_of(path: str) -> int:
    return int(path.rpartition("-")[2])


def logged(reports: RankReports) -> bytes:
    """The log as a file would hold it."""
    parts = [
        (_staged_line(reports.staged[index]) if index in reports.staged else b"") + line
        for index, line in sorted(reports.lines.items())
    ]
    return b"".join([*parts, _RETURNED if reports.returned else b""])


@cache
def report_line(index: int, score: float | None) -> bytes:
    return line(index, 0.0, {} if score is None else {"score": score})
