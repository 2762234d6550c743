"""Files that the last attempt staged on its nodes and that the dead driver had not gathered. They are known when the
logs of all ranks have arrived. They are then hashed and gathered on their nodes, and adopted like files that were
gathered before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from holdfast.core.run import commands as do
from holdfast.core.run.salvage import committable
from holdfast.core.run.state import Durable
from holdfast.errors import StorageError
from holdfast.runs.past import Past
from holdfast.store import report_log
from holdfast.store.manifests import FileEntry, Manifest, Shard, choose
from holdfast.store.report_log import RankReports
from holdfast.wire import messages as wire

from .logged_reports import log_of, manifest_of
from .shard_registry import ShardRegistry, with_files


@dataclass
class _Sealing:
    """A checkpoint whose files are being hashed."""

    command: do.Commit
    shards: dict[int, Shard] = field(default_factory=dict)  # by rank


class LateShards:
    """``gathered`` is called with the manifest of each checkpoint that was gathered, and the nodes that have it."""

    def __init__(
        self,
        shards: ShardRegistry,
        past: Past,
        state: Durable,
        wall: float,
        gathered: Callable[[Manifest, set[str]], None],
        warn: Callable[[str], None],
    ) -> None:
        self._shards, self._past, self._state, self._wall = shards, past, state, wall
        self._gathered, self._warn = gathered, warn
        self._left: dict[int, tuple[str, wire.LeftReports]] = {}  # by rank, with its node
        self._sealing: dict[int, _Sealing] = {}  # by index
        self._taken: set[int] = set()

    @property
    def is_busy(self) -> bool:
        return bool(self._sealing)

    @property
    def reports(self) -> list[RankReports]:
        """The reports of all ranks; empty if one is not known."""
        attempt = self._past.last_attempt
        if attempt is None or len(self._left) < attempt.world_size:
            return []
        return [report_log.parse(self._left[rank][1].log) for rank in range(attempt.world_size)]

    def add(self, node: str, left: Sequence[wire.LeftReports], manifests: Sequence[Manifest]) -> None:
        """The files of a node; ``manifests``: checkpoints that nodes have gathered and that are not in storage."""
        attempt = self._past.last_attempt
        for reports in left:
            if (
                attempt is not None
                and reports.attempt_number == attempt.attempt_number
                and reports.rank < attempt.world_size
            ):
                self._left[reports.rank] = (node, reports)
        ranks = self.reports
        if not ranks:
            return
        for manifest in manifests:
            self._complete(manifest, ranks)
        self._take_up(ranks, {m.index for m in manifests if m.attempt_number == self._state.attempt_number})

    def _take_up(self, ranks: list[RankReports], gathered: set[int]) -> None:
        """Have the files hashed that all ranks had staged."""
        logs = [log_of(reports, self._left[rank][1].lost) for rank, reports in enumerate(ranks)]
        for command in committable(self._state, logs, self._past.given_up, self._past.committed):
            if command.index in gathered | self._taken:
                continue
            self._taken.add(command.index)
            self._sealing[command.index] = _Sealing(command)
            for rank in command.ranks:
                stored = [entry for entry in ranks[rank].staged[command.index].files if entry.at]
                if stored:
                    self._sealing[command.index].shards[rank] = Shard(rank, "", stored)
                else:
                    self._shards.seal(self._left[rank][0], command.attempt_number, [rank], command.index)
            self._gather_if_sealed(command.index)

    def sealed(self, message: wire.Sealed) -> bool:
        """Whether it was one of these."""
        sealing = self._sealing.get(message.index)
        if sealing is None or sealing.command.attempt_number != message.attempt_number:
            return False
        if message.error:
            self._give_up(message.index, message.error)
            return True
        entries = [FileEntry(*entry) for entry in message.files]
        sealing.shards[message.rank] = Shard(message.rank, "", entries)
        self._gather_if_sealed(message.index)
        return True

    def node_lost(self, node: str) -> None:
        homes = {rank for rank, (home, _) in self._left.items() if home == node}
        for index in [i for i, sealing in self._sealing.items() if homes & set(sealing.command.ranks)]:
            self._give_up(index, f"{node} was lost")
            self._taken.discard(index)
        self._left = {rank: left for rank, left in self._left.items() if rank not in homes}

    def _give_up(self, index: int, why: str) -> None:
        command = self._sealing.pop(index).command
        self._warn(f"{command.id}, which the last driver had not committed, cannot be used: {why}")

    def _gather_if_sealed(self, index: int) -> None:
        sealing = self._sealing[index]
        if len(sealing.shards) < len(sealing.command.ranks):
            return
        try:
            chosen = choose(sealing.command.id, list(sealing.shards.values()))
        except StorageError as error:
            self._give_up(index, str(error))
            return
        del self._sealing[index]
        manifest = with_files(manifest_of(sealing.command, self.reports, self._wall), [entry for entry, _ in chosen])
        self._gather(manifest, self._parts((entry.path, shard.rank) for entry, shard in chosen if not entry.at))

    def _complete(self, manifest: Manifest, ranks: list[RankReports]) -> None:
        """The driver died when some nodes had gathered the checkpoint and others had not."""
        if manifest.attempt_number != self._state.attempt_number or manifest.index in self._taken:
            return
        owners: dict[str, int] = {}
        for rank, reports in enumerate(ranks):
            for entry in reports.staged[manifest.index].files if manifest.index in reports.staged else ():
                owners.setdefault(entry.path, rank)
        here = {rank for rank in owners.values() if manifest.index not in self._left[rank][1].lost}
        stored = {entry.path for entry in manifest.files if entry.at}
        parts = self._parts((path, rank) for path, rank in owners.items() if rank in here and path not in stored)
        self._taken.add(manifest.index)
        if parts:
            self._gather(manifest, parts)

    def _parts(self, owners: Iterable[tuple[str, int]]) -> dict[str, dict[int, list[str]]]:
        """By node and rank."""
        parts: dict[str, dict[int, list[str]]] = {}
        for path, rank in owners:
            parts.setdefault(self._left[rank][0], {}).setdefault(rank, []).append(path)
        return parts

    def _gather(self, manifest: Manifest, parts: dict[str, dict[int, list[str]]]) -> None:
        self._shards.gather_on(parts, manifest)
        self._gathered(manifest, set(parts))
