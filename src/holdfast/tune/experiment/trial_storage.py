"""A trial's storage. It has its own checkpoints and reports; its history is part of the experiment's journal."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.experiment.events import OfTrial
from holdfast.core.experiment.records import entry_of
from holdfast.driver.disk_storage import DiskStorage
from holdfast.driver.remote_storage import RemoteStorage
from holdfast.driver.storage import Entries, Storage
from holdfast.engine.engine_interface import Inbox
from holdfast.errors import StorageError
from holdfast.runs.past import IDENTITY
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.store.scratch import trial_directory
from holdfast.store.sealed import Damage

Then = Callable[[], None]
Entry = tuple[str, Mapping[str, Any]]


_SYNC_WITHIN_S = 0.1


class JournalBatch:
    """The records of this turn of the loop, of the experiment and all its trials: one write for all.

    On disk, a written record survives the death of the driver immediately, and a power cut a moment later: many short
    trials share a sync.
    """

    def __init__(self, storage: Storage, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.storage, self._monotonic = storage, monotonic
        self._entries: list[Entry] = []
        self._thens: list[Then] = []
        self._on_their_way = 0  # writes that are not done yet
        self.mark: Entry | None = None  # written with the next record, without a write of its own
        self._last_mark: Entry | None = None
        self._sync_at = math.inf

    def check_lease(self) -> None:
        self.storage.check_lease()

    def note(self, entries: Entries, then: Then | None = None) -> None:
        self._entries.extend(entries)
        if then is not None:
            self._thens.append(then)

    @property
    def has_open(self) -> bool:
        """Whether a record is not durable yet, or an action that waits for one is not done yet."""
        return bool(self._entries or self._thens or self._on_their_way)

    def write(self) -> bool:
        """Make the records durable, and run the actions that wait for them; returns whether there were any."""
        entries, thens, self._entries, self._thens = self._entries, self._thens, [], []
        if not entries and not thens:
            return False
        if entries and self.mark != self._last_mark and self.mark is not None:
            entries.insert(0, self.mark)
            self._last_mark = self.mark
        self._on_their_way += 1

        def done() -> None:
            self._on_their_way -= 1
            for then in thens:
                then()

        if self.storage.write_soon(entries, done):
            self._sync_at = min(self._sync_at, self._monotonic() + _SYNC_WITHIN_S)
        return True

    def write_mark(self) -> None:
        """Write a record on its own: no action waits for it."""
        if self.mark is not None and self.mark != self._last_mark:
            self._entries.append(self.mark)
            self._last_mark = self.mark
        self.write()

    def due(self) -> float:
        return self._sync_at

    def sync_if_due(self, now: float) -> None:
        if self._sync_at <= now:
            self._sync_at = math.inf
            self.storage.sync()


def _now(then: Then) -> None:
    then()


class TrialHistory:
    """A trial's part of the journal, in memory as long as the trial has not ended."""

    def __init__(self, trial: str, batch: JournalBatch, epoch: int, records: Sequence[Record] = ()) -> None:
        self._trial, self._batch = trial, batch
        self.epoch = epoch
        self.records = list(records)
        self.experiment = batch.storage
        self.deliver: Callable[[Then], None] = _now  # to the trial's driver

    def check_lease(self) -> None:
        self._batch.check_lease()

    def write(self, entries: Entries, then: Then) -> None:
        kept = [(kind, body) for kind, body in entries if kind != IDENTITY]
        if not kept and not self._batch.has_open:
            then()
            return
        now = time.time()
        self.records += [Record(0, now, kind, dict(body)) for kind, body in kept]
        own = [entry_of(OfTrial(self._trial, kind, dict(body))) for kind, body in kept]
        self._batch.note(own, lambda: self.deliver(then))


class _Shared:
    """The part of a storage that the experiment takes care of."""

    _history: TrialHistory

    @property
    def epoch(self) -> int:
        return self._history.epoch

    def open(self) -> tuple[list[Record], list[Damage]]:
        return self._history.records, []

    def write(self, entries: Entries, then: Then) -> None:
        self._history.write(entries, then)

    def read_identity(self) -> dict[str, Any]:
        return {}

    def write_identity(self, identity: dict[str, Any]) -> None:
        """The experiment has named its trials."""

    def records(self) -> list[Record]:
        return self._history.records

    def write_last(self, entries: Entries) -> None:
        self._history.write(entries, lambda: None)


class TrialDiskStorage(_Shared, DiskStorage):
    has_reports_too = True

    def __init__(self, history: TrialHistory, home: RunLayout, inbox: Inbox, score_attribute: str | None) -> None:
        super().__init__(home, inbox, score_attribute)
        self._history = history

    def acquire(self) -> int:
        try:
            self.home.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{self.home.root} cannot be written: {error}. Choose another storage_path.") from error
        return self._history.epoch

    def release(self) -> None:
        """Does nothing: the lease belongs to the experiment."""

    def check_lease(self) -> None:
        self._history.check_lease()


class TrialRemoteStorage(_Shared, RemoteStorage):
    def __init__(
        self,
        history: TrialHistory,
        location: Location,
        scratch_dir: Path,
        inbox: Inbox,
        score_attribute: str | None,
        patience_s: float,
    ) -> None:
        super().__init__(location, scratch_dir, inbox, score_attribute, patience_s)
        self._history = history
        self._damage: list[Damage] = []
        self._is_acquired = False

    def acquire(self) -> int:
        self._reach()
        self._is_acquired = True
        self._list()
        return self._history.epoch

    def release(self) -> None:
        if self._is_acquired:
            self._objects.close()

    @property
    def is_lost(self) -> bool:
        return self._history.experiment.is_lost

    def _run_scratch(self, run_id: str) -> Path:
        return trial_directory(self._history.experiment.run_dir.parent, self._location.name)
