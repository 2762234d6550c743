"""The run's storage on a disk that the driver reaches."""

from __future__ import annotations

import contextlib
import functools
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from holdfast.core.run import events as ev
from holdfast.core.run import step as core
from holdfast.core.run.staged_files import ON_SHARED_DISK
from holdfast.engine.engine_interface import Inbox
from holdfast.errors import CheckpointDamagedError, HoldfastError, StorageError
from holdfast.runs.past import Past
from holdfast.store.disk import FencedDisk
from holdfast.store.disk_run import DiskRun
from holdfast.store.interfaces import Entries, JournalWriter
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout
from holdfast.store.manifests import Manifest, Shard
from holdfast.store.sealed import Damage

from .committed_events import committed
from .late_reports import take_up
from .recovery import reconcile
from .storage import Outcome, Storage

_MANY = 64  # shards of a checkpoint


class DiskStorage(Storage):
    files = ON_SHARED_DISK

    def __init__(self, home: RunLayout, inbox: Inbox, score_attribute: str | None) -> None:
        super().__init__(inbox, score_attribute)
        self.home = home
        self._disk = FencedDisk(self.check_lease)
        self._cleaning = ThreadPoolExecutor(max_workers=1, thread_name_prefix="holdfast-cleaning")
        self._run: DiskRun = DiskRun(home, self._disk)
        self._checkpoints = self._run.checkpoints
        self._journal: JournalWriter | None = None
        self._left: deque[Sequence[Shard]] = deque()  # of commits: empty directories, mostly

    def acquire(self) -> int:
        self._lease = self._run.acquire()
        return self._lease.epoch

    def release(self) -> None:
        self._lease.release()

    def check_lease(self) -> None:
        self._lease.check()

    @property
    def is_lost(self) -> bool:
        return self._loss() is not None

    def cause_of(self, error: Exception) -> Exception:
        return self._loss() or error

    def settle(self, run_id: str) -> None:
        """The files of a run on disk are in its directory."""

    @property
    def run_dir(self) -> Path:
        return self.home.root

    def report_log(self, attempt_number: int, rank: int, node: str) -> Path | None:
        return self.home.report_log(attempt_number, rank)

    @property
    def run_key(self) -> str:
        return str(self.home.root)

    def open(self) -> tuple[list[Record], list[Damage]]:
        self._journal, records, damage = self._lease.open_journal()
        return records, damage

    def write(self, entries: Entries, then: Callable[[], None]) -> None:
        """A sync takes less than the way to another thread and back."""
        self.write_last(entries)
        then()

    def write_last(self, entries: Entries) -> None:
        self._append(entries, sync=True)

    def write_soon(self, entries: Entries, then: Callable[[], None]) -> bool:
        if entries:
            self._append(entries, sync=False)
        then()
        return bool(entries)

    def _append(self, entries: Entries, sync: bool) -> None:
        assert self._journal is not None
        self.check_lease()
        self._journal.append(entries, time.time(), sync)

    def sync(self) -> None:
        assert self._journal is not None
        self._journal.sync()

    def records(self) -> list[Record]:
        return self._run.read_journal()[0]

    def take_stock(self, past: Past) -> tuple[list[ev.Event], list[Damage]]:
        found, damage = reconcile(past, self._checkpoints, self._score_attribute)
        state = functools.reduce(core.replay, found, past.state)
        taken = take_up(past, state, self._checkpoints, self.home)
        self.note_taken_up(taken, state)
        self._checkpoints.collect()
        return [*found, *(committed(manifest, self._score_attribute, index=-1) for manifest in taken)], damage

    def read_manifest(self, id: str) -> Manifest:
        return self._checkpoints.read_manifest(id)

    def commit(self, manifest: Manifest, shards: Sequence[Shard], sync_reports: Callable[[], None]) -> None:
        def job() -> Outcome:
            try:
                done = self._merge(manifest, shards, sync_reports)
            except Exception as error:
                failed = ev.CommitFailed(manifest.attempt_number, manifest.index, str(error) or repr(error))
                return self._loss() or failed
            self._inbox.put(committed(done, self._score_attribute, manifest.index))
            # With ten thousand ranks this takes a second. The loop should first tell ranks of the commit, so it calls
            # the first of these before it handles the event, and the second one in its next turn.
            self._left.append(shards)
            self._inbox.put(lambda: self._inbox.put(self._discard_rest))
            return None

        self._submit(self._pool, job)

    def _discard_rest(self) -> None:
        """Clean up after all commits so far. If the loop ends before that, ``close`` does it."""
        with contextlib.suppress(RuntimeError):  # closed meanwhile
            self._submit(self._cleaning, self._discard_left)

    def _discard_left(self) -> None:
        while self._left:
            self._checkpoints.discard(self._left.popleft())

    def _merge(self, manifest: Manifest, shards: Sequence[Shard], sync_reports: Callable[[], None]) -> Manifest:
        """With many ranks, the reports are written to disk while files are moved: both take about as long."""
        if len(shards) < _MANY:
            sync_reports()
            return self._checkpoints.commit(manifest, shards, leave_rest=True)
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="holdfast-sync") as beside:
            synced = beside.submit(sync_reports)
            return self._checkpoints.commit(manifest, shards, leave_rest=True, before=synced.result)

    def verify(self, id: str, fetch: Callable[[bytes], None]) -> None:
        """A damaged checkpoint is set aside. If storage cannot be read, nothing is known about the checkpoint, and the
        run ends."""

        def job() -> Outcome:
            try:
                self._checkpoints.verify(id)
            except CheckpointDamagedError as error:
                return ev.Damaged(id, str(error))
            except Exception as error:
                return StorageError(f"{id} could not be read: {error}")
            return ev.Verified(id)

        self._submit(self._pool, job)

    def adopt(self, manifest: Manifest, *_: object) -> None:
        raise NotImplementedError("on disk, checkpoints of an earlier driver are adopted when the run is opened")

    def delete(self, id: str) -> None:
        self._submit(self._pool, lambda: self._checkpoints.delete(id))

    def quarantine(self, id: str, why: str) -> None:
        self._submit(self._pool, lambda: self._checkpoints.quarantine(id, why))

    def discard(self, attempt_number: int, index: int, world_size: int) -> None:
        def job() -> None:
            for rank in range(world_size):
                directory = self.home.shard_dir(attempt_number, index, rank)
                if directory.exists():
                    self._disk.rmtree(directory)

        self._submit(self._pool, job)

    def _submit(self, pool: ThreadPoolExecutor, job: Callable[[], Outcome]) -> None:
        """A driver that has lost the run ends, and leaves its storage as it is."""
        super()._submit(pool, lambda: self._loss() or job())

    def _loss(self) -> HoldfastError | None:
        try:
            self.check_lease()
        except HoldfastError as error:
            return error
        return None

    def address(self, id: str) -> str:
        return str(self.home.checkpoint_dir(id))

    def log_address(self, attempt_number: int, rank: int) -> str:
        return str(self.home.log_file(attempt_number, rank))

    def close(self, all_stored: bool) -> None:
        self._pool.shutdown(wait=True)
        self._cleaning.shutdown(wait=True)
        try:
            with contextlib.suppress(HoldfastError):
                self.check_lease()  # without it, staged files belong to another driver
                self._discard_left()
                if all_stored:
                    self._checkpoints.remove_staged()
        finally:
            if self._journal is not None:
                self._journal.close()
