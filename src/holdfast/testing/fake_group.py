"""A group of workers as it really is: where each rank runs, what it has done, and what the driver hears of it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from holdfast.core.run import commands as do


class Status(Enum):
    STARTING = "starting"
    TRAINING = "training"
    RETURNED = "returned"
    DEAD = "dead"


class Node:
    def __init__(self, id: str, room: int) -> None:
        self.id, self.room = id, room
        self.lives = True
        self.draining = False  # as far as the driver knows
        self.cut_until = 0.0  # endless: nothing gets through any more
        self.lost_at = 0.0  # when the driver hears of it

    def is_cut_off(self, now: float) -> bool:
        return self.lives and self.cut_until > now


class Worker:
    def __init__(self, rank: int, node: Node | None) -> None:
        self.rank, self.node = rank, node
        self.status = Status.STARTING
        self.reports = 0
        self.stuck = False  # hung for good, or stopped until somebody lets it go on
        self.unsaid = False  # whether it made reports that the driver does not know of yet
        self.frozen = False  # stopped: it does not even listen
        self.heard_until = 0.0
        self.told = 0  # the reports that the driver hears of
        self.is_silent = False  # nothing that it says arrives any more
        self.ends_at = 0.0  # by itself, when it has outlived its driver
        self.notice_waits = False
        self.noticed = False  # it knows that its group is about to end
        self.handover_at: int | None = None
        self.is_parked = False  # until it knows where
        self.waits_at: int | None = None  # for the end, or for a later point

    @property
    def lives(self) -> bool:
        return self.status in (Status.STARTING, Status.TRAINING)

    def has_reported(self, index: int) -> bool:
        """Whether the driver hears of that report, sooner or later."""
        if self.is_silent:
            return self.told > index
        return self.reports > index or self.status is Status.RETURNED


class Group:
    def __init__(self, command: do.StartGroup, homes: Sequence[Node | None]) -> None:
        self.homes = homes  # by rank
        self.generation = command.generation
        self.base = command.base
        self.resume = command.resume
        self.workers = [Worker(rank, homes[rank]) for rank in range(command.world_size)]
        self.staged: dict[int, set[int]] = {}  # index -> the ranks that brought files
        self.files: dict[int, set[int]] = {}  # those of them that the driver can hear of
        self.sealed: set[tuple[int, int]] = set()  # (rank, index)
        self.discarded: set[int] = set()
        self.gathered: dict[int, do.Gather] = {}
        self.lost: set[int] = set()  # what the nodes have no more
        self.waiting: dict[int, list[Worker]] = {}  # index -> those that wait until it is durable
        self.heard_until = 0.0
        self.over = False

    def reported_by_all(self, index: int) -> bool:
        return all(worker.has_reported(index) for worker in self.workers)

    def is_whole(self, index: int) -> bool:
        return self.reported_by_all(index) and all((rank, index) in self.sealed for rank in self.files[index])

    def is_reachable(self, worker: Worker, now: float) -> bool:
        """Whether what the rank left on its node can be had."""
        node = self.homes[worker.rank]
        return node is None or (node.lives and not node.is_cut_off(now))

    def has_staged(self, index: int) -> bool:
        return index not in self.lost and index not in self.discarded
