"""The files that ranks staged and nodes gathered, until they are in storage or given up."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from holdfast.core.run import commands as do
from holdfast.store.layout import RunLayout
from holdfast.store.manifests import (
    FileEntry,
    Manifest,
    Shard,
    choose,
    intact_manifests,
    is_user_metadata,
    manifest_line,
)
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import CheckpointCommitted

from .attempts import Attempts
from .node_registry import NodeRegistry
from .outbox import Kind, Outbox, Report
from .site import Site


@dataclass
class _Unsaved:
    """The pending checkpoint of one report: what the driver knows in addition to its state in the core."""

    shards: dict[int, Shard] = field(default_factory=dict)  # by rank, sealed
    size: int = 0  # bytes of those, kept up to date because it is read at every turn
    arguments: Any = None  # the arguments of its validation
    manifest: Manifest | None = None  # when it was gathered


class ShardRegistry:
    def __init__(self, nodes: NodeRegistry, outbox: Outbox, attempts: Attempts, layout: RunLayout, site: Site) -> None:
        self._nodes, self._outbox, self._attempts, self._layout, self._site = nodes, outbox, attempts, layout, site
        self._unsaved: dict[Report, _Unsaved] = {}

    def seal(self, node: str, attempt_number: int, ranks: Sequence[int], index: int) -> None:
        """Let the node hash staged shards, and sync them if that makes them durable."""
        orders: dict[Any, wire.Message] = {
            (attempt_number, r, index): wire.Seal(attempt_number, [r], index) for r in ranks
        }
        self._outbox.order_together(node, Kind.SEAL, orders, wire.Seal(attempt_number, list(ranks), index))

    def take_sealed(self, message: wire.Sealed) -> None:
        attempt_number, rank, index = message.attempt_number, message.rank, message.index
        self._outbox.finish(Kind.SEAL, (attempt_number, rank, index))
        if not message.error:
            directory = self._layout.shard_path(attempt_number, index, rank)
            shard = Shard(rank, directory, [FileEntry(*entry) for entry in message.files])
            unsaved = self._entry(attempt_number, index)
            unsaved.size += _size(shard) - (_size(unsaved.shards[rank]) if rank in unsaved.shards else 0)
            unsaved.shards[rank] = shard

    def _entry(self, attempt_number: int, index: int) -> _Unsaved:
        report = attempt_number, index
        if report not in self._unsaved:
            self._unsaved[report] = _Unsaved()
        return self._unsaved[report]

    def keep_arguments(self, attempt_number: int, index: int, arguments: Any) -> None:
        """The arguments for the validation of that checkpoint."""
        self._entry(attempt_number, index).arguments = arguments

    def arguments(self, command: do.Commit | do.Gather) -> Any:
        return self._unsaved[command.attempt_number, command.index].arguments

    def shards(self, command: do.Commit | do.Gather) -> list[Shard]:
        found = self._unsaved[command.attempt_number, command.index].shards
        return [found[rank] for rank in command.ranks]

    def size(self, attempt_number: int, index: int) -> int:
        """How many bytes are staged for that report, as far as they are counted."""
        unsaved = self._unsaved.get((attempt_number, index))
        return 0 if unsaved is None else unsaved.size

    def lost_with(self, command: do.Gather) -> str | None:
        """A node that had a part of the checkpoint and was lost before it was asked to gather it."""
        homes = {self._attempts.node_of(command.attempt_number, rank) for rank in command.ranks}
        return None if self._site.keeps_files else next(iter(sorted(homes - set(self._nodes.ids))), None)

    def gather(self, command: do.Gather, manifest: Manifest) -> None:
        """Let each node gather the files of its own workers for a complete checkpoint."""
        chosen = choose(command.id, self.shards(command))
        manifest = with_files(manifest, [entry for entry, _ in chosen])
        parts: dict[str, dict[int, list[str]]] = {}
        for rank in command.ranks:
            parts.setdefault(self._attempts.node_of(command.attempt_number, rank), {})[rank] = []
        for entry, shard in chosen:
            if not entry.at:  # otherwise it is in storage already
                parts[self._attempts.node_of(command.attempt_number, shard.rank)][shard.rank].append(entry.path)
        self._entry(command.attempt_number, command.index).manifest = manifest
        self.gather_on(parts, manifest)

    def gather_on(self, nodes: Mapping[str, Mapping[int, list[str]]], manifest: Manifest) -> None:
        """``nodes``: the files that each node merges, by node and rank."""
        report, line = (manifest.attempt_number, manifest.index), manifest_line(manifest)
        for node, parts in nodes.items():
            order = wire.Gather(manifest.id, *report, line, list(parts.items()))
            self._outbox.order(node, Kind.GATHER, report, order)

    def gathered(self, attempt_number: int, index: int) -> Manifest | None:
        """The manifest of a checkpoint that nodes have gathered and uploaded."""
        unsaved = self._unsaved.get((attempt_number, index))
        return None if unsaved is None else unsaved.manifest

    def manifest_of(self, id: str) -> Manifest | None:
        """The manifest of a checkpoint that is being uploaded."""
        manifests = (unsaved.manifest for unsaved in self._unsaved.values())
        return next((manifest for manifest in manifests if manifest is not None and manifest.id == id), None)

    def is_at_hand(self, attempt_number: int, index: int) -> bool:
        """Whether all of a gathered checkpoint is on the only node that the next attempt can be on."""
        holders = self._outbox.holders(Kind.GATHER, (attempt_number, index))
        return len(holders) == 1 and (not self._site.grows or holders == set(self._nodes.usable()))

    def upload(self, manifest: Manifest, ranks: Sequence[int]) -> None:
        homes, wanted = {self._attempts.node_of(manifest.attempt_number, rank) for rank in ranks}, set(ranks)
        for node, there in self._attempts.ranks_on(manifest.attempt_number, sorted(homes)).items():
            self._upload(node, manifest, [rank for rank in there if rank in wanted])

    def upload_from(self, node: str, manifest: Manifest) -> None:
        """Upload files that an earlier driver left there."""
        self._upload(node, manifest, [])

    def _upload(self, node: str, manifest: Manifest, ranks: list[int]) -> None:
        report = manifest.attempt_number, manifest.index
        self._outbox.order(node, Kind.UPLOAD, report, wire.Upload(manifest.id, *report, ranks))

    def take_uploaded(self, node: str, message: wire.Uploaded) -> None:
        self._outbox.finish(Kind.UPLOAD, (message.attempt_number, message.index), node)

    # The end of a checkpoint's way

    def note_durable(self, attempt_number: int, index: int, id: str) -> None:
        """The checkpoint is committed."""
        self._drop(attempt_number, index)
        self._outbox.tell(CheckpointCommitted(attempt_number, id, index))

    def forget(self, manifest: Manifest) -> None:
        self._outbox.tell(wire.Forget(manifest.attempt_number, manifest.index, manifest.id))

    def discard(self, attempt_number: int, index: int) -> None:
        """The files of that report are no longer needed."""
        manifest = self.gathered(attempt_number, index)
        self._drop(attempt_number, index)
        self._outbox.forget_staged(attempt_number, index, manifest.id if manifest else "")

    def sort_out(self, unsaved: Sequence[bytes], stored: Collection[str]) -> None:
        """Messages that a lost node has missed: which of its checkpoints are in storage, and which are given up."""
        for manifest in intact_manifests(unsaved):
            if manifest.id in stored:
                self.note_durable(manifest.attempt_number, manifest.index, manifest.id)
            elif self.gathered(manifest.attempt_number, manifest.index) is None:
                self.forget(manifest)

    def _drop(self, attempt_number: int, index: int) -> None:
        report = attempt_number, index
        self._unsaved.pop(report, None)
        self._outbox.finish(Kind.GATHER, report)
        self._outbox.finish(Kind.UPLOAD, report)


def _size(shard: Shard) -> int:
    return sum(entry.size for entry in shard.files)


def with_files(manifest: Manifest, files: list[FileEntry]) -> Manifest:
    return structs.replace(manifest, files=[entry for entry in files if not is_user_metadata(entry.path)])
