"""The nodes of a run, and what they were asked for and have not done yet: with a lost node none of that is forgotten.

An order belongs to the node that has what it is about, and is given again when that node comes back. On a disk that all
nodes reach, any of them can do it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from holdfast.core.run import commands as do
from holdfast.engine.agent_link import FENCE_MARGIN_S
from holdfast.engine.engine_interface import Engine, EngineSession, Inbox
from holdfast.errors import CheckpointDamagedError
from holdfast.store.layout import RunLayout
from holdfast.store.manifests import (
    FileEntry,
    Manifest,
    Shard,
    choose,
    is_user_metadata,
    manifest_line,
    parse_manifest_line,
)
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import Durable, Pressure

from .configuration import configured_for
from .peers import Peers
from .plan import Plan
from .roster import Roster
from .storage import Storage

Report = tuple[int, int]  # (generation, index)
_NOBODY = ""  # the node of an order that any node may carry out, and none is there


class Fleet:
    def __init__(self, plan: Plan, engine: Engine, configuration: wire.Configure) -> None:
        self._plan, self._engine, self._configuration = plan, engine, configuration
        self._session: EngineSession | None = None
        least = plan.spec.min_workers or plan.spec.num_workers
        self.roster = Roster(plan.cpus_per_worker, plan.gpus_per_worker, plan.placement, least)
        self.peers = Peers(self.roster, self._send)
        self._start: do.StartGroup | None = None  # a group that waits for a node
        self._homes: dict[int, dict[int, str]] = {}  # generation -> rank -> node
        self._busy: set[str] = set()  # nodes on which processes of the group may live
        self._orders: dict[tuple[str, str, Any], wire.Message] = {}  # by node, kind and what they are about
        self._shards: dict[Report, dict[int, Shard]] = {}  # by rank, sealed
        self._gathered: dict[Report, Manifest] = {}  # whole, and not known to be in storage
        self._fetches: dict[str, wire.Fetch] = {}
        self._stalled = False

    @property
    def is_remote(self) -> bool:
        return bool(self._configuration.storage)

    @property
    def grows(self) -> bool:
        """Whether nodes come and go, so that there may be too little room."""
        return self._engine.grows

    @property
    def keeps_files(self) -> bool:
        """Whether a node that is lost comes back with its files, which are on this machine."""
        return self._engine.is_this_machine

    # Nodes

    def open(self, inbox: Inbox, storage: Storage) -> None:
        self._layout = RunLayout(storage.run_dir)
        self._configuration = configured_for(self._configuration, storage)
        self._session = self._engine.open(self._configuration, inbox)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def ready(self, message: wire.NodeReady) -> None:
        """A node can be used: it takes over what is open."""
        assert self._session is not None
        node = message.node_id
        self._session.accept(node, message.pid)
        self.roster.ready(message)
        if self.grows:
            self.peers.joined(node)
        for (owner, kind, about), order in list(self._orders.items()):
            if owner == _NOBODY:
                del self._orders[owner, kind, about]
                self._order(node, kind, about, order)
            elif owner == node:
                self._send(node, order)
        for id, fetch in self._fetches.items():
            self._order(node, "fetch", id, fetch)
        if self._stalled:
            self._send(node, Pressure(True))
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

    def lost(self, node: str) -> tuple[list[int], list[Report]]:
        """The ranks of the present group that were on it, and the reports of which it had what is not in storage."""
        self.roster.lost(node)
        self.peers.lost(node)
        self._busy.discard(node)
        ranks = [rank for rank, home in self._homes.get(self.generation, {}).items() if home == node]
        left_with = {about[:2] for owner, kind, about in self._orders if owner == node and kind in ("upload", "gather")}
        unsealed = {(g, i) for owner, kind, (g, _, i) in self._of_kind("seal") if owner == node}
        for owner, kind, about in [key for key in self._orders if key[0] == node]:
            if kind == "task" or (kind == "seal" and not self.is_remote):
                self._order(
                    next(iter(self.roster.usable()), _NOBODY), kind, about, self._orders.pop((owner, kind, about))
                )
            elif kind == "fetch" or not self.keeps_files:
                del self._orders[owner, kind, about]
        for id, fetch in self._fetches.items():
            if not any(about == id for _, _, about in self._of_kind("fetch")):
                for other in self.roster.usable():  # who has it says so at once
                    self._order(other, "fetch", id, fetch)
        return ranks, sorted(left_with | unsealed) if self.is_remote and not self.keeps_files else []

    def _of_kind(self, wanted: str) -> list[tuple[str, str, Any]]:
        return [key for key in self._orders if key[1] == wanted]

    def _order(self, node: str, kind: str, about: Any, order: wire.Message) -> None:
        self._orders[node, kind, about] = order
        if node != _NOBODY:
            self._send(node, order)

    def _done(self, kind: str, about: Any, node: str | None = None) -> bool:
        """Forget an order that is carried out; whether it was still open."""
        found = [key for key in self._orders if key[1:] == (kind, about) and node in (None, key[0])]
        for key in found:
            del self._orders[key]
        return bool(found)

    def _send(self, node: str, message: wire.Message) -> None:
        if self._session is not None:  # else it was closed
            self._session.send(node, message)

    def tell(self, message: wire.Message) -> None:
        for node in self.roster.ids:
            self._send(node, message)

    def probe(self, node: str) -> None:
        self._send(node, wire.Probe())

    def slots(self) -> int:
        """How many workers there is room for."""
        slots = self.roster.slots()
        return self._plan.spec.num_workers if math.isinf(slots) else int(slots)

    # Groups

    @property
    def lease_s(self) -> float:
        """How long workers across a network may live when their driver has died."""
        return self._configuration.node_timeout_s + FENCE_MARGIN_S

    @property
    def generation(self) -> int:
        """Of the last group that was started."""
        return max(self._homes, default=0)

    def start(self, command: do.StartGroup) -> bool:
        """Start a group, as soon as there is a node; False if there is no longer room for it."""
        placed = self.roster.place(command.world_size, command.leased)
        if sum(map(len, placed.values())) < command.world_size:
            self._start = None if self.grows else command
            return not self.grows
        self._start = None
        self._homes[command.generation] = {place.rank: node for node, places in placed.items() for place in places}
        self._busy = set(placed)
        for node, places in placed.items():
            order = wire.StartWorkers(command.generation, command.world_size, command.base, command.resume, places)
            self._send(node, structs.replace(order, address=self.roster.address(node)))
        return True

    def stop(self, generation: int, graceful: bool) -> bool:
        """Stop a group; True if no node has heard of it yet, and so none will."""
        if self._start is not None or generation not in self._homes:
            self._start = None
            return True
        for node in self._busy:
            self._send(node, wire.StopWorkers(generation, graceful))
        return not self._busy

    def is_gone(self, node: str, generation: int) -> bool:
        """A node has no process of the group any more; whether that was the last one."""
        if generation != self.generation:
            return False
        self._busy.discard(node)
        return not self._busy

    def is_well_placed(self, generation: int) -> bool:
        """Whether a group has only nodes that the next one would be on, too."""
        return set(self._homes.get(generation, {}).values()) <= set(self.roster.usable())

    def node_of(self, generation: int, rank: int) -> str:
        return self._homes.get(generation, {}).get(rank, "")

    def ranks_on(self, generation: int, nodes: Iterable[str]) -> dict[str, list[int]]:
        homes = self._homes.get(generation, {})
        return {node: sorted(rank for rank, home in homes.items() if home == node) for node in nodes}

    # Checkpoints

    def report_log(self, generation: int, rank: int) -> Path | None:
        """Where the rank logs its reports, if this machine has that."""
        if not self.is_remote:
            return self._layout.report_log(generation, rank)
        node = self.node_of(generation, rank)
        return RunLayout(self._layout.root / node).report_log(generation, rank) if self.keeps_files else None

    def seal(self, node: str, generation: int, rank: int, index: int) -> None:
        """Have a staged shard hashed, and forced to disk where that makes it durable."""
        if not self.is_remote and node not in self.roster.ids:
            node = next(iter(self.roster.usable()), _NOBODY)
        self._order(node, "seal", (generation, rank, index), wire.Seal(generation, rank, index))

    def sealed(self, message: wire.Sealed) -> None:
        generation, rank, index = message.generation, message.rank, message.index
        self._done("seal", (generation, rank, index))
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

    def gather(self, command: do.Gather, manifest: Manifest) -> None:
        """Have a whole checkpoint put together, each node what its own workers saved."""
        chosen = choose(command.id, self.shards(command))
        manifest = with_files(manifest, [entry for entry, _ in chosen])
        parts: dict[str, dict[int, list[str]]] = {}
        for rank in command.ranks:
            parts.setdefault(self.node_of(command.generation, rank), {})[rank] = []
        for entry, shard in chosen:
            if not entry.at:  # else it is in storage already
                parts[self.node_of(command.generation, shard.rank)][shard.rank].append(entry.path)
        self._gathered[command.generation, command.index] = manifest
        for node, by_rank in parts.items():
            self.gather_on(node, manifest, by_rank)

    def gather_on(self, node: str, manifest: Manifest, parts: Mapping[int, list[str]]) -> None:
        """``parts``: by rank, the files that this node is to put together."""
        report = manifest.generation, manifest.index
        order = wire.Gather(manifest.id, *report, manifest_line(manifest), list(parts.items()))
        self._order(node, "gather", report, order)

    def gathered(self, generation: int, index: int) -> Manifest:
        return self._gathered[generation, index]

    def is_at_hand(self, generation: int, index: int) -> bool:
        """Whether all of a gathered checkpoint is on the only node that the next group can be on."""
        holders = {node for node, kind, about in self._orders if kind == "gather" and about == (generation, index)}
        return len(holders) == 1 and (not self.grows or holders == set(self.roster.usable()))

    def upload(self, manifest: Manifest, ranks: Sequence[int]) -> None:
        report = manifest.generation, manifest.index
        nodes = self.ranks_on(manifest.generation, {self.node_of(manifest.generation, rank) for rank in ranks})
        for node, there in nodes.items():
            wanted = [rank for rank in there if rank in ranks]
            self._order(node, "upload", report, wire.Upload(manifest.id, *report, wanted))

    def upload_from(self, node: str, manifest: Manifest) -> None:
        """Of what an earlier driver left there."""
        report = manifest.generation, manifest.index
        self._order(node, "upload", report, wire.Upload(manifest.id, *report, []))

    def uploaded(self, node: str, message: wire.Uploaded) -> None:
        self._done("upload", (message.generation, message.index), node)

    def manifest_of(self, id: str) -> Manifest | None:
        """Of a checkpoint that is on its way to storage."""
        return next((manifest for manifest in self._gathered.values() if manifest.id == id), None)

    def fetch(self, id: str, manifest: bytes, stored: bool = True) -> None:
        """Have a checkpoint verified where workers may read it. ``stored``: what a node lacks can be downloaded."""
        self._fetches[id] = wire.Fetch(id, manifest, stored)
        for node in self.roster.usable():
            self._order(node, "fetch", id, self._fetches[id])

    def fetched(self, node: str, id: str, failed: bool) -> bool:
        """Whether that decides it: one has failed, or it was the last one."""
        if id not in self._fetches:
            return False
        self._done("fetch", id, node)
        if not failed and any(about == id for _, kind, about in self._orders if kind == "fetch"):
            return False
        self._done("fetch", id)
        del self._fetches[id]
        return True

    def is_durable(self, generation: int, index: int, id: str) -> None:
        """A checkpoint is committed."""
        self._drop(generation, index)
        self.tell(Durable(generation, id, index))

    def stall(self, on: bool) -> None:
        self._stalled = on
        self.tell(Pressure(on))

    def forget(self, manifest: Manifest) -> None:
        self.tell(wire.Forget(manifest.generation, manifest.index, manifest.id))

    def discard(self, generation: int, index: int) -> None:
        """Nobody wants that report's files any more."""
        manifest = self._gathered.get((generation, index))
        self._drop(generation, index)
        if self.is_remote:
            self.tell(wire.Forget(generation, index, manifest.id if manifest else ""))

    def _drop(self, generation: int, index: int) -> None:
        report = generation, index
        self._shards.pop(report, None)
        self._gathered.pop(report, None)
        self._done("gather", report)
        self._done("upload", report)

    # Tasks beside the workers

    def run_task(self, task: str, payload: bytes, timeout_s: float | None) -> None:
        node = next(iter(self.roster.usable()), _NOBODY)
        self._order(node, "task", task, wire.RunTask(task, payload, timeout_s))

    def task_done(self, task: str) -> bool:
        """Whether it was still waited for."""
        return self._done("task", task)


def with_files(manifest: Manifest, files: list[FileEntry]) -> Manifest:
    return structs.replace(manifest, files=[entry for entry in files if not is_user_metadata(entry.path)])
