"""The run's history on an object store. Two drivers cannot both write it, because each position can be taken only once.

A driver begins its epoch by taking the next position with a claim. The previous driver's next append finds that claim,
and so it knows that it has lost the run. Claims are never removed, nor is the object right before a claim. So a driver
that has lost the run always finds its next position taken. docs/decisions/0008-runs-on-object-stores.md has the
reasoning.
"""

from __future__ import annotations

import contextlib
import time as clock
from collections.abc import Callable

import msgspec

from holdfast.errors import RunInUseError, StorageError
from holdfast.store import journal
from holdfast.store.interfaces import Entries, JournalWriter
from holdfast.store.journal import Record
from holdfast.store.objects.base import ObjectStore
from holdfast.store.remote import sequence
from holdfast.store.remote.sequence import EPOCH_BEGAN, Entry, Header, StoredPast
from holdfast.store.remote.turns import PATIENCE_S, SETTLE_S, PoliteTurns, SafeTurns, TakenError
from holdfast.store.sealed import Damage

_MERGE_AT = 16  # objects; with fewer, appends cost more, with more, opening costs more
_SMALL = 256 << 10  # bytes; smaller objects are always merged
_TOMBSTONE_ABOVE = 4 << 10  # bytes
_TRIES = 100


def read(objects: ObjectStore) -> tuple[list[Record], list[Damage]]:
    """Every intact record in order, and the problems of the rest."""
    past = sequence.read(objects)
    return past.records, past.damage


class RemoteJournal(JournalWriter):
    """The journal, open for the driver of one epoch. Not thread-safe."""

    def __init__(self, objects: ObjectStore, turns: SafeTurns | PoliteTurns, past: StoredPast, claim: Header) -> None:
        self.epoch = claim.epoch
        self._objects = objects
        self._turns = turns
        self._claim = claim
        self._entries = past.entries
        self._claims = past.claims | {claim.position}
        self._next_seq = max((record.seq for record in past.records), default=0) + 1
        # Keep a damaged journal for people to inspect. The damaged part may also have been a claim.
        self._removable_from = claim.position if past.damage else 1
        self._out: RunInUseError | None = None
        turns.next_position = claim.position

    @classmethod
    def open(
        cls,
        objects: ObjectStore,
        token: str,
        *,
        settle_s: float = SETTLE_S,
        patience_s: float = PATIENCE_S,
        now: Callable[[], float] = clock.time,
        wait: Callable[[float], None] = clock.sleep,
    ) -> tuple[RemoteJournal, list[Record], list[Damage]]:
        """Read the history and begin an epoch above all earlier ones. ``token`` is unique to the driver and has no "."
        or "/". ``settle_s``, ``patience_s`` and ``wait`` matter only on stores without safe creates."""
        turns = (
            SafeTurns(objects, token)
            if objects.creates_safely
            else PoliteTurns(objects, token, settle_s, patience_s, wait)
        )
        try:
            for _ in range(_TRIES):
                past = sequence.read(objects)
                if turns.announce(past.epoch):
                    continue
                claim = Header.of_this_process(position=past.last + 1, epoch=turns.epoch, token=token, claim=True)
                opened = cls(objects, turns, past, claim)
                with contextlib.suppress(_StillWritingError):
                    opened._begin(now())
                    return opened, past.records, past.damage
        except TakenError as taken:
            who = taken.header.who if taken.header else "another process"
            raise RunInUseError(
                f"The run in {objects.url} was started by {who} at the same moment. Wait until it ends or stop it, "
                f"or give this run another name (RunConfig(name=...))."
            ) from None
        raise RunInUseError(
            f"The driver of the run in {objects.url} keeps writing. Stop it, then run the same command again."
        )

    def append(self, entries: Entries, time: float, sync: bool = True) -> None:
        """Make all entries durable with one object. After an error none of them counts as written."""
        if not entries:
            return
        if self._out is not None:
            raise self._out
        lines = b"".join(
            journal.line(seq, time, kind, body) for seq, (kind, body) in enumerate(entries, start=self._next_seq)
        )
        merged = self._to_merge(len(lines))
        content = b"".join(entry.lines for entry in merged) + lines
        first = merged[0].first if merged else self._entries[-1].position + 1
        try:
            added = self._write(first, content, claim=False)
        except TakenError as taken:
            self._out = self._fenced(taken.header)
            raise self._out from None
        self._next_seq += len(entries)
        del self._entries[len(self._entries) - len(merged) :]
        self._entries.append(added)
        if merged:
            self._remove(merged, added)

    @property
    def is_out(self) -> bool:
        """Whether an append has met another driver's claim."""
        return self._out is not None

    def sync(self) -> None:
        """Nothing to do: what is written is durable."""

    def close(self) -> None:
        """Nothing to do: nothing is held open. The next driver decides about what a failed append left."""

    def _begin(self, time: float) -> None:
        claim = self._claim
        who = {"epoch": claim.epoch, "position": claim.position, "token": claim.token}
        body = who | {"host": claim.host, "pid": claim.pid}
        try:
            line = journal.line(self._next_seq, time, EPOCH_BEGAN, body)
            added = self._write(claim.position, line, claim=True)
        except TakenError as taken:
            if taken.header is not None and not taken.header.claim and isinstance(self._turns, SafeTurns):
                raise _StillWritingError from None
            raise
        self.began = Record(self._next_seq, time, EPOCH_BEGAN, body)
        self._entries = [*self._entries, added]
        self._next_seq += 1

    def _write(self, first: int, content: bytes, claim: bool) -> Entry:
        def compose(position: int) -> bytes:
            return self._head(position, first, claim).line() + content

        position = self._turns.write(compose)
        return Entry(self._turns.key(position), position, first, content)

    def _head(self, position: int, first: int, claim: bool = False) -> Header:
        return msgspec.structs.replace(self._claim, position=position, first=first, claim=claim)

    def _to_merge(self, size: int) -> list[Entry]:
        """The newest objects that the next one should replace: none, or several that are small compared with it.

        After the first time, the merged size at least doubles, so a record is rewritten only a few times in total.
        """
        count = 0
        for entry in reversed(self._entries):
            if len(entry.lines) > max(size, _SMALL):
                break
            size += len(entry.lines)
            count += 1
        return self._entries[-count:] if count >= _MERGE_AT - 1 else []

    def _remove(self, merged: list[Entry], into: Entry) -> None:
        """Delete objects that another object has replaced. If that fails, no reader uses them any more anyway.

        First check that the new object is complete and that no other driver has taken over: on a store without safe
        creates, the object may have arrived too late to count.
        """
        old = [entry for entry in merged if entry.position >= self._removable_from]
        kept = self._claims | {position - 1 for position in self._claims}
        with contextlib.suppress(StorageError, TakenError):
            self._turns.look()
            if self._objects.get(into.key) != self._head(into.position, into.first).line() + into.lines:
                return
            for entry in old:
                # A driver that lost the run may try this position again. Keep it taken, by a small object.
                if entry.position in kept - self._claims and len(entry.lines) > _TOMBSTONE_ABOVE:
                    self._objects.put(entry.key, self._head(entry.position, entry.position).line())
            self._objects.delete([entry.key for entry in old if entry.position not in kept])

    def _fenced(self, by: Header | None) -> RunInUseError:
        who = by.who if by else "another process"
        return RunInUseError(
            f"The run in {self._objects.url} has been taken over by {who}; this driver (process {self._claim.pid} on "
            f"{self._claim.host}, epoch {self.epoch}) has stopped writing. This is expected if this driver was cut "
            f"off for a while: the other driver resumes from storage."
        )


class _StillWritingError(Exception):
    """The old driver has taken the position."""
