"""The nodes of a run, and what they were asked for and have not done yet: with a lost node none of that is lost."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from msgspec import structs

from holdfast.core import commands as do
from holdfast.engine.base import Engine, Inbox, Session
from holdfast.errors import CheckpointDamagedError
from holdfast.settings import Settings
from holdfast.store.checkpoints import (
    FileEntry,
    Manifest,
    Shard,
    choose,
    is_user_metadata,
    manifest_line,
    parse_manifest_line,
)
from holdfast.store.layout import RunLayout
from holdfast.wire import messages as wire

from .plan import Plan

Report = tuple[int, int]  # (generation, index)


class Fleet:
    def __init__(self, plan: Plan, engine: Engine, configuration: wire.Configure) -> None:
        self._plan, self._engine, self._configuration = plan, engine, configuration
        self._layout = RunLayout(Path(configuration.run_dir))
        self._session: Session | None = None
        self._nodes: list[str] = []
        self._start: do.StartGroup | None = None  # a group that waits for a node
        self._unsealed: dict[tuple[int, int, int], wire.Seal] = {}
        self._shards: dict[Report, dict[int, Shard]] = {}  # by rank, sealed
        self._gathered: dict[Report, Manifest] = {}  # whole, and not known to be in storage
        self._gathers: dict[Report, wire.Gather] = {}
        self._uploads: dict[Report, wire.Upload] = {}
        self._fetches: dict[str, wire.Fetch] = {}
        self._tasks: dict[str, wire.RunTask] = {}
        self._stalled = False

    def open(self, inbox: Inbox) -> None:
        self._session = self._engine.open(self._configuration, inbox)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def _send(self, node: str, message: wire.Message) -> None:
        assert self._session is not None
        self._session.send(node, message)

    def ready(self, node: str, pid: int) -> None:
        """A node can be used: it takes over what is open."""
        assert self._session is not None
        self._session.accept(node, pid)
        self._nodes.append(node)
        open_work = (self._unsealed, self._gathers, self._uploads, self._fetches, self._tasks)
        for orders in open_work:
            for order in orders.values():
                self._send(node, order)
        if self._stalled:
            self._send(node, wire.Pressure(True))
        if self._start is not None:
            self.start(self._start)

    def sort_out(self, unsaved: Sequence[bytes], stored: Collection[str]) -> None:
        """What a node that was lost has not heard: which of its checkpoints are in storage, and which are given up."""
        for line in unsaved:
            try:
                manifest = parse_manifest_line(line)
            except CheckpointDamagedError:
                continue  # half written: it is gathered again
            if manifest.id in stored:
                self.is_durable(manifest.generation, manifest.index, manifest.id)
            elif (manifest.generation, manifest.index) not in self._gathered:
                self.forget(manifest)

    def lost(self, node: str) -> None:
        """What its workers staged is on disk, and is sealed by the node that follows."""
        self._nodes = [other for other in self._nodes if other != node]  # it may not have been ready yet

    def tell(self, message: wire.Message) -> None:
        for node in self._nodes:
            self._send(node, message)

    def start(self, command: do.StartGroup) -> None:
        """Start a group, as soon as there is a node."""
        self._start = None if self._nodes else command
        if self._start is not None:
            return
        places = [self._place(rank, command.world_size) for rank in range(command.world_size)]
        order = wire.StartWorkers(command.generation, command.world_size, command.base, command.resume, places)
        self._send(self._nodes[0], order)

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
        self._send(node, order)

    def sealed(self, message: wire.Sealed) -> None:
        generation, rank, index = message.generation, message.rank, message.index
        self._unsealed.pop((generation, rank, index), None)
        if not message.error:
            directory = str(self._layout.shard_dir(generation, index, rank))
            shard = Shard(rank, directory, [FileEntry(*entry) for entry in message.files])
            self._shards.setdefault((generation, index), {})[rank] = shard

    def shards(self, command: do.Commit | do.Gather) -> list[Shard]:
        found = self._shards[command.generation, command.index]
        return [found[rank] for rank in command.ranks]

    def size(self, generation: int, index: int) -> int:
        """How many bytes are staged for that report, as far as they are counted."""
        shards = self._shards.get((generation, index), {}).values()
        return sum(entry.size for shard in shards for entry in shard.files)

    def gather(self, command: do.Gather, manifest: Manifest) -> Manifest:
        """Have a whole checkpoint put together; its manifest, with its files."""
        chosen = choose(command.id, self.shards(command))
        manifest = with_files(manifest, [entry for entry, _ in chosen])
        parts: dict[int, list[str]] = {}
        for entry, shard in chosen:
            if entry.at:
                continue  # it is in storage already
            parts.setdefault(shard.rank, []).append(entry.path)
        where = (command.id, command.generation, command.index)
        order = wire.Gather(*where, manifest_line(manifest), list(parts.items()))
        report = command.generation, command.index
        self._gathered[report], self._gathers[report] = manifest, order
        self.tell(order)
        return manifest

    def gathered(self, generation: int, index: int) -> Manifest:
        return self._gathered[generation, index]

    def upload(self, manifest: Manifest, ranks: Sequence[int]) -> None:
        report = manifest.generation, manifest.index
        self._uploads[report] = wire.Upload(manifest.id, *report, list(ranks))
        self.tell(self._uploads[report])

    def uploaded(self, message: wire.Uploaded) -> None:
        self._uploads.pop((message.generation, message.index), None)

    def manifest_of(self, id: str) -> bytes | None:
        """Of a checkpoint that is on its way to storage."""
        return next((manifest_line(m) for m in self._gathered.values() if m.id == id), None)

    def fetch(self, id: str, manifest: bytes) -> None:
        """Have a checkpoint verified where the workers will read it."""
        self._fetches[id] = wire.Fetch(id, manifest)
        self.tell(self._fetches[id])

    def fetched(self, id: str) -> bool:
        """Whether it was still waited for."""
        return self._fetches.pop(id, None) is not None

    def is_durable(self, generation: int, index: int, id: str) -> None:
        """A checkpoint is committed."""
        self._drop(generation, index)
        self.tell(wire.Durable(generation, id))

    def stall(self, on: bool) -> None:
        self._stalled = on
        self.tell(wire.Pressure(on))

    def forget(self, manifest: Manifest) -> None:
        self.tell(wire.Forget(manifest.generation, manifest.index, manifest.id))

    def discard(self, generation: int, index: int) -> None:
        """Nobody wants that report's files any more."""
        manifest = self._gathered.get((generation, index))
        self._drop(generation, index)
        if self._configuration.storage:
            self.tell(wire.Forget(generation, index, manifest.id if manifest else ""))

    def _drop(self, generation: int, index: int) -> None:
        for known in (self._shards, self._gathered, self._gathers, self._uploads):
            known.pop((generation, index), None)

    def run_task(self, task: str, payload: bytes, timeout_s: float | None) -> None:
        """Run something beside the workers."""
        self._tasks[task] = wire.RunTask(task, payload, timeout_s)
        for node in self._nodes[:1]:
            self._send(node, self._tasks[task])

    def task_done(self, task: str) -> bool:
        """Whether it was still waited for."""
        return self._tasks.pop(task, None) is not None


def with_files(manifest: Manifest, files: list[FileEntry]) -> Manifest:
    return structs.replace(manifest, files=[entry for entry in files if not is_user_metadata(entry.path)])


def configuration(plan: Plan, settings: Settings, run_dir: Path, storage: bytes) -> wire.Configure:
    """What all nodes of the run are told first. ``storage`` is the pickled location, if that is remote."""
    return wire.Configure(
        node_id="",
        run_name=plan.name,
        run_dir=str(run_dir),
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
        storage=storage,
        storage_url=str(plan.location) if storage else "",
        patience_s=settings.storage_patience_s,
        node_timeout_s=settings.node_timeout_s,
    )


def _working_directory() -> bytes:
    try:
        return os.getcwdb()
    except FileNotFoundError:  # somebody removed it
        return b""
