"""The nodes of a run, and what they were asked for and have not done yet: with a lost node none of that is lost."""

from __future__ import annotations

import math
import os
import sys

from holdfast.core import commands as do
from holdfast.engine.base import Engine, Inbox
from holdfast.settings import Settings
from holdfast.store.checkpoints import FileEntry, Shard
from holdfast.wire import messages as wire

from .plan import Plan


class Fleet:
    def __init__(self, plan: Plan, engine: Engine, settings: Settings) -> None:
        self._plan, self._engine, self._settings = plan, engine, settings
        self._nodes: list[str] = []
        self._start: do.StartGroup | None = None  # a group that waits for a node
        self._unsealed: dict[tuple[int, int, int], wire.Seal] = {}
        self._shards: dict[tuple[int, int], dict[int, Shard]] = {}  # (generation, index) -> rank -> sealed shard
        self._tasks: dict[str, wire.RunTask] = {}

    def open(self, inbox: Inbox) -> None:
        self._engine.open(_configuration(self._plan, self._settings), inbox)

    def close(self) -> None:
        self._engine.close()

    def ready(self, node: str) -> None:
        """A node can be used: it takes over what is open."""
        self._nodes.append(node)
        for message in (*self._unsealed.values(), *self._tasks.values()):
            self._engine.send(node, message)
        if self._start is not None:
            self.start(self._start)

    def lost(self, node: str) -> None:
        """What its workers staged is on disk, and is sealed by the node that follows."""
        self._nodes = [other for other in self._nodes if other != node]  # it may not have been ready yet

    def tell(self, message: wire.Message) -> None:
        for node in self._nodes:
            self._engine.send(node, message)

    def start(self, command: do.StartGroup) -> None:
        """Start a group, as soon as there is a node."""
        self._start = None if self._nodes else command
        if self._start is not None:
            return
        source = self._plan.initial_checkpoint
        if command.resume is not None:
            source = str(self._plan.layout.checkpoint_dir(command.resume))
        places = [self._place(rank, command.world_size) for rank in range(command.world_size)]
        order = wire.StartWorkers(command.generation, command.world_size, command.base, source, places)
        self._engine.send(self._nodes[0], order)

    def _place(self, rank: int, world_size: int) -> wire.Place:
        gpus = math.ceil(self._plan.gpus_per_worker)
        devices = list(range(rank * gpus, (rank + 1) * gpus))
        return wire.Place(rank, rank, world_size, 0, self._plan.cpus_per_worker, devices)

    def stop(self, generation: int, graceful: bool) -> bool:
        """Stop a group; True if no node has heard of it yet, and so none will."""
        if self._start is not None:
            self._start = None
            return True
        self.tell(wire.StopWorkers(generation, graceful))
        return False

    def seal(self, node: str, generation: int, rank: int, index: int) -> None:
        """Have a staged shard hashed and forced to disk."""
        order = wire.Seal(generation, rank, index)
        self._unsealed[generation, rank, index] = order
        self._engine.send(node, order)

    def sealed(self, message: wire.Sealed) -> None:
        generation, rank, index = message.generation, message.rank, message.index
        self._unsealed.pop((generation, rank, index), None)
        if not message.error:
            directory = str(self._plan.layout.shard_dir(generation, index, rank))
            shard = Shard(rank, directory, [FileEntry(*entry) for entry in message.files])
            self._shards.setdefault((generation, index), {})[rank] = shard

    def shards(self, command: do.Commit) -> list[Shard]:
        found = self._shards[command.generation, command.index]
        return [found[rank] for rank in command.ranks]

    def forget(self, generation: int, index: int) -> None:
        """The shards of that report are committed, or given up."""
        self._shards.pop((generation, index), None)

    def run_task(self, task: str, payload: bytes, timeout_s: float | None) -> None:
        """Run something beside the workers."""
        self._tasks[task] = wire.RunTask(task, payload, timeout_s)
        for node in self._nodes[:1]:
            self._engine.send(node, self._tasks[task])

    def task_done(self, task: str) -> bool:
        """Whether it was still waited for."""
        return self._tasks.pop(task, None) is not None


def _configuration(plan: Plan, settings: Settings) -> wire.Configure:
    return wire.Configure(
        node_id="",
        run_name=plan.name,
        run_dir=str(plan.layout.root),
        payload=plan.payload,
        env={os.fsencode(name): os.fsencode(value) for name, value in {**os.environ, **plan.env}.items()},
        sys_path=[os.fsencode(path) for path in sys.path],
        argv=[os.fsencode(argument) for argument in sys.argv],
        cwd=_working_directory(),
        essential=list(plan.essential),
        preload=list(plan.preload),
        start_method=settings.start_method,
        stop_grace_s=settings.stop_grace_s,
        metadata=dict(plan.metadata),
        validates=plan.validation is not None,
    )


def _working_directory() -> bytes:
    try:
        return os.getcwdb()
    except FileNotFoundError:  # somebody removed it
        return b""
