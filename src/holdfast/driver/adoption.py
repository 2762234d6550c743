"""Checkpoints that the nodes of an earlier driver have and storage lacks. They are uploaded before anything else
happens. Each node has the files of its own workers. A checkpoint is committed when storage has all of it, no matter
which node uploaded it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from holdfast.core.run import events as ev
from holdfast.core.run.salvage import Leftover, Next, is_adoptable, next_for
from holdfast.core.run.state import CheckpointRecord, Durable
from holdfast.errors import StorageError
from holdfast.runs.past import Past
from holdfast.store.manifests import Manifest, intact_manifests
from holdfast.wire import messages as wire

from .effects import Adopt, Effect, NoteAdopted
from .late_shards import LateShards
from .shard_registry import ShardRegistry


@dataclass
class _Left:
    """A checkpoint that is not in storage."""

    manifest: Manifest
    uploading: set[str] = field(default_factory=set)  # the nodes that are uploading their part of it
    is_looked_at: bool = False  # whether storage has all of it now
    is_looked_at_too_early: bool = False  # more parts have arrived since the question
    lacks: Sequence[str] = ()  # the files that no node has
    lost: str = ""  # why it will never be whole
    refused: str = ""  # why an upload of it failed

    @property
    def next(self) -> Next:
        situation = bool(self.uploading), self.is_looked_at, bool(self.lacks), bool(self.lost), bool(self.refused)
        return next_for(Leftover(*situation))

    @property
    def name(self) -> str:
        return f"{self.manifest.id}, which was not in storage yet when the last driver ended,"


class Adoption:
    def __init__(
        self,
        shards: ShardRegistry,
        emit: Callable[[Effect], None],
        past: Past,
        state: Durable,
        wall: float,
        then: Callable[[list[ev.Event]], None],
        warn: Callable[[str], None],
    ) -> None:
        """``state``: the replayed state, including what storage has. ``then`` gets the result for the core when nothing
        more can be uploaded. It is called again if a node uploads more."""
        self._shards, self._emit, self._then, self._warn = shards, emit, then, warn
        self._past, self._state = past, state
        self._late = LateShards(shards, past, state, wall, self._gathered, warn)
        self._open: dict[tuple[int, int], _Left] = {}
        self._done: list[ev.Committed] = []
        self._adopted: list[Manifest] = []

    @property
    def is_busy(self) -> bool:
        return self._late.is_busy or not all(left.lacks for left in self._open.values())

    def begin(self, node: str, unsaved: Sequence[bytes], left_there: Sequence[wire.LeftReports]) -> None:
        """May be called again: for another node, or for a node that was lost and came back."""
        stored = {*(c.id for c in self._state.checkpoints), *(event.record.id for event in self._done)}
        for manifest in intact_manifests(unsaved):
            if manifest.id in stored:
                self._shards.note_durable(manifest.attempt_number, manifest.index, manifest.id)
            elif self._is_wanted(manifest):
                self._bring(manifest, {node})
            else:
                self._shards.forget(manifest)
        self._late.add(node, left_there, [left.manifest for left in self._open.values()])
        self._finish_if_idle()

    def _is_wanted(self, manifest: Manifest) -> bool:
        record, where = CheckpointRecord(manifest.id, manifest.report), (manifest.attempt_number, manifest.index)
        return is_adoptable(self._state, record, where, self._past.given_up, self._past.valid_until)

    def _bring(self, manifest: Manifest, nodes: set[str]) -> _Left:
        left = self._open.setdefault((manifest.attempt_number, manifest.index), _Left(manifest))
        left.uploading |= nodes
        left.lacks = ()
        for node in sorted(nodes):
            self._shards.upload_from(node, manifest)
        return left

    def _gathered(self, manifest: Manifest, nodes: set[str]) -> None:
        """Nodes have now gathered what they had only staged."""
        left = self._bring(manifest, nodes)
        self._advance(left)  # the user may have stored all of it

    def sealed(self, message: wire.Sealed) -> bool:
        """Whether the message was about something that an earlier driver left."""
        known = self._late.sealed(message)
        if known:
            self._finish_if_idle()
        return known

    def uploaded(self, node: str, attempt_number: int, index: int, error: str) -> bool:
        """Whether the message was about one of these checkpoints."""
        left = self._open.get((attempt_number, index))
        if left is None:
            return False
        left.refused = error
        self._brings_no_more(node, left)
        return True

    def staged_lost(self, node: str, id: str, why: str) -> bool:
        """Whether the message was about one of these checkpoints. An earlier driver may have stored the file
        nevertheless."""
        left = next((left for left in self._open.values() if left.manifest.id == id), None)
        if left is None:
            return False
        left.lost = why
        self._brings_no_more(node, left)
        return True

    def node_lost(self, node: str) -> None:
        self._late.node_lost(node)
        for left in list(self._open.values()):
            if node in left.uploading:
                self._brings_no_more(node, left)

    def give_up_the_rest(self) -> bool:
        """Whether a checkpoint is still incomplete, because nodes with more of it did not join."""
        for left in self._open.values():
            self._warn(f"{left.name} is not used: a node that has {left.lacks[0]} has not come back")
        return bool(self._open)

    def _brings_no_more(self, node: str, left: _Left) -> None:
        left.uploading.discard(node)
        left.is_looked_at_too_early, left.lacks = left.is_looked_at, ()
        self._advance(left)

    def _advance(self, left: _Left) -> None:
        match left.next:
            case Next.LOOK:
                self._look(left)
            case Next.GIVE_UP:
                self._warn(f"{left.name} is given up: {left.lost}")
                del self._open[left.manifest.attempt_number, left.manifest.index]
                self._shards.forget(left.manifest)
            case Next.END_RUN:
                raise StorageError(
                    f"{left.name} could not be uploaded: {left.refused}. It is still on its node: run the same "
                    f"command again to retry."
                )
            case Next.WAIT | Next.KEEP:
                pass

    def _look(self, left: _Left) -> None:
        left.is_looked_at, left.is_looked_at_too_early = True, False
        of_last_attempt = left.manifest.attempt_number == self._state.attempt_number
        reports = self._late.reports if of_last_attempt else []
        self._emit(Adopt(left.manifest, reports))

    def take_committed(self, event: ev.Committed, manifest: Manifest) -> None:
        del self._open[manifest.attempt_number, manifest.index]
        self._done.append(event)
        self._adopted.append(manifest)
        self._shards.note_durable(manifest.attempt_number, manifest.index, manifest.id)
        self._finish_if_idle()

    def take_lacking(self, manifest: Manifest, paths: Sequence[str]) -> None:
        left = self._open[manifest.attempt_number, manifest.index]
        left.is_looked_at = False
        if not left.uploading and not left.is_looked_at_too_early:
            left.lacks = paths
        self._advance(left)
        self._finish_if_idle()

    def _finish_if_idle(self) -> None:
        if not self.is_busy:
            self._emit(NoteAdopted(list(self._adopted), self._state))
            self._then([*sorted(self._done, key=lambda event: event.record.report)])
