"""What nodes have of checkpoints: staged by workers, sealed, gathered, brought to storage, or lost on the way."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev

from .clock import Clock
from .fake_group import Group, Node
from .fake_store import PATIENCE_S
from .schedule import Faults, Workload


class FakeDepot:
    def __init__(self, clock: Clock, rng: Random, faults: Faults, workload: Workload, groups: dict[int, Group]) -> None:
        self.keeps_staged = False  # a node has what it staged for itself
        self.deliver: Callable[[ev.Event], None]
        self.put: Callable[[str, int, int], None]  # id, generation, rank: into storage
        self.storage_is_away: Callable[[], bool]
        self._groups = groups  # by generation
        self._clock, self._rng, self._faults, self._workload = clock, rng, faults, workload

    def seal(self, event: ev.ShardStaged) -> None:
        """The driver's answer to a staged shard. The agent outlives the workers, so their end does not hinder it."""
        slow = 5.0 if self._rng.random() < 0.1 else 0.3
        self._clock.after(self._rng.random() * slow, self._sealed, event)

    def _sealed(self, event: ev.ShardStaged) -> None:
        where = (event.generation, event.rank, event.index)
        group = self._groups[event.generation]
        node = group.homes[event.rank] if self.keeps_staged else None
        if self._waits_for_link(node, self._sealed, event) or (node is not None and not node.lives):
            return
        vanished = event.index in group.discarded and self._rng.random() < 0.5
        if vanished or self._faults.hit("seal failure"):
            if not vanished:
                self._faults.count("seal failure")
            self.deliver(ev.ShardFailed(*where, "no space is left"))
            return
        group.sealed.add((event.rank, event.index))
        self.deliver(ev.ShardSealed(*where))

    def gather(self, command: do.Gather) -> None:
        """The nodes remember a whole checkpoint, unless its parts do not go together."""
        group, index = self._groups[command.generation], command.index
        if self._faults.hit("gather failure"):
            self._faults.count("gather failure")
            self.deliver(ev.CommitFailed(command.generation, index, "two ranks brought the same file"))
        elif self._is_lost(group, index):
            self._say_lost(command.id, 0.5)
        else:
            group.gathered[index] = command

    def upload(self, command: do.Upload) -> None:
        """The nodes bring their files to storage, each at its own pace. What fails, fails for all of them."""
        group, index = self._groups[command.generation], command.index
        if index not in group.gathered:
            return
        pace = self._workload.upload_s
        if self._faults.hit("slow upload"):
            self._faults.count("slow upload")
            pace = 60.0
        if self._is_lost(group, index):
            self._say_lost(command.id, pace)
            return
        failed = self._faults.hit("upload failure")
        if failed:
            self._faults.count("upload failure")
        failed = failed or self.storage_is_away()
        for rank in command.ranks[1:] if failed else command.ranks:
            self._clock.after(self._rng.random() * pace, self._uploaded, group, command, rank)
        if failed:
            event = ev.UploadFailed(command.generation, index, "storage is away")
            self._clock.after(PATIENCE_S + pace, self.deliver, event)

    def _uploaded(self, group: Group, command: do.Upload, rank: int) -> None:
        if self._waits_for_link(group.homes[rank], self._uploaded, group, command, rank):
            return
        if command.index in group.lost:
            self._say_lost(command.id, 0.1)
        elif command.index not in group.discarded:
            self.put(command.id, command.generation, rank)
            self.deliver(ev.ShardUploaded(command.generation, rank, command.index))

    def _waits_for_link(self, node: Node | None, call: Callable[..., None], *args: object) -> bool:
        """Whether what a node does is heard later, or never."""
        if node is None or self._clock.now >= node.cut_until:
            return False
        if node.cut_until < math.inf:
            self._clock.at(node.cut_until, call, *args)
        return True

    def verify(self, id: str, generation: int, index: int) -> None:
        """Whether the nodes still have what they staged."""
        group = self._groups[generation]
        if self._is_lost(group, index) or not group.has_staged(index):
            self._say_lost(id, 2.0)
            return
        latency = self._rng.random() * 2.0
        self._clock.after(latency, self.deliver, ev.Verified(id))
        if self._rng.random() < 0.2:
            self._faults.count("staged files were lost when they were verified")
            group.lost.add(index)
            self._clock.after(latency, self._say_lost, id, 1.0)

    def discard(self, command: do.Discard) -> None:
        if command.generation in self._groups:
            self._groups[command.generation].discarded.add(command.index)

    def free(self, generation: int, index: int) -> None:
        """It is in storage: the nodes may need the room."""
        self._groups[generation].lost.add(index)

    def lose(self, node: Node) -> None:
        for group in self._groups.values():
            for index, ranks in group.files.items():
                if any(group.homes[rank] is node for rank in ranks):
                    group.lost.add(index)

    def lose_all(self, group: Group) -> None:
        """The node is gone with all that it staged, and the one in its place says so."""
        group.lost.update(group.files)
        for gathered in group.gathered.values():
            self._say_lost(gathered.id, 3.0)

    def _say_lost(self, id: str, latency: float) -> None:
        self._clock.after(self._rng.random() * latency, self.deliver, ev.StagedLost(id, "its node is gone"))

    def _is_lost(self, group: Group, index: int) -> bool:
        if index not in group.lost and self._faults.hit("staged lost"):
            self._faults.count("staged lost")
            group.lost.add(index)
        return index in group.lost
