"""Whether a checkpoint is intact. Storage verifies it, or returns the manifest, and the nodes fetch and verify the
files."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.run import events as ev
from holdfast.core.run.state import RunState
from holdfast.errors import StorageError
from holdfast.store.manifests import manifest_line
from holdfast.wire import messages as wire

from .effects import Effect, Verify
from .outbox import Outbox
from .shard_registry import ShardRegistry


class Verification:
    def __init__(self, outbox: Outbox, shards: ShardRegistry, emit: Callable[[Effect], None]) -> None:
        self._outbox, self._shards, self._emit = outbox, shards, emit
        self._waiting: str | None = None  # waits for storage, because some nodes have no part or only a part
        self._staged: set[str] = set()  # what nodes are verifying that was not in storage when they were asked

    def begin(self, id: str, state: RunState) -> None:
        self._waiting = None
        manifest = self._shards.manifest_of(id)
        if manifest is None:
            self._emit(Verify(id))
        elif self._shards.is_at_hand(manifest.attempt_number, manifest.index):
            self._staged.add(id)
            self._outbox.fetch(id, manifest_line(manifest), stored=False)
        elif all(pending.is_uploaded for pending in state.unsaved if pending.id == id):
            self._staged.add(id)
            self._outbox.fetch(id, manifest_line(manifest))
        else:
            self._waiting = id

    def resume(self, state: RunState) -> None:
        """Something has been uploaded."""
        if self._waiting is not None:
            self.begin(self._waiting, state)

    def take_manifest(self, id: str, line: bytes) -> None:
        self._outbox.fetch(id, line)

    def take_fetched(self, node: str, message: wire.Fetched) -> ev.Event | None:
        """The event that a node's answer means, if the answer is decisive."""
        id, error = message.id, message.error
        if not self._outbox.take_fetched(node, id, message.number, bool(error)):
            return None
        staged = id in self._staged
        self._staged.discard(id)
        if not error:
            return ev.Verified(id)
        if not message.damaged:
            raise StorageError(f"{id} could not be read: {error}")
        # A staged file says nothing about storage, which may have it by now.
        return ev.StagedLost(id, error) if staged else ev.Damaged(id, error)
