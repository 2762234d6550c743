"""The run's storage as the driver uses it: on a disk that it reaches, or far away.

What takes time is done by threads of its own, so that the loop never waits for it; what comes of it goes into the
inbox: events of the core, things to do in the loop, or the error that ends the run.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from holdfast.core.run import events as ev
from holdfast.core.run import step as core
from holdfast.core.run.state import Durable
from holdfast.engine.engine_interface import Inbox
from holdfast.errors import CheckpointDamagedError, HoldfastError, StorageError
from holdfast.runs.past import Past
from holdfast.store.disk import FencedDisk
from holdfast.store.disk_run import DiskRun
from holdfast.store.interfaces import Entries as Entries
from holdfast.store.interfaces import JournalWriter
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout
from holdfast.store.manifests import Manifest, Shard
from holdfast.store.report_log import RankReports
from holdfast.store.sealed import Damage

from .late_reports import LateReport, late_reports, take_up
from .recovery import committed, reconcile

log = logging.getLogger(__name__)
Outcome = ev.Event | Exception | Callable[[], None] | None


class Storage(ABC):
    """``home`` holds what the driver writes on its own machine: all of the run, or what is yet to be uploaded. With
    remote storage it is known when ``settle`` was called."""

    home: RunLayout

    nodes_hold_files: bool  # what their workers staged, and upload it; else the driver reaches it
    has_reports_too = False  # they are also in the journal, so that nobody waits for their files to be on disk

    def __init__(self, inbox: Inbox, score_attribute: str | None) -> None:
        self._inbox = inbox
        self._score_attribute = score_attribute
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="holdfast-commit")
        self._jobs: set[Future[None]] = set()
        self._taken_up: list[Manifest] = []  # what the last driver had not committed, and this one has
        self._known_before = 0  # the newest report that was safe without that

    @abstractmethod
    def acquire(self) -> int:
        """Take the lease, or raise RunInUseError; the epoch that begins with it."""

    @property
    @abstractmethod
    def epoch(self) -> int:
        """That began with this driver."""

    @abstractmethod
    def settle(self, run_id: str) -> None:
        """The run's id is known: take over what an earlier driver left on this machine."""

    @property
    @abstractmethod
    def run_dir(self) -> Path:
        """The run's directory; with remote storage, where nodes have theirs for it in this epoch."""

    @abstractmethod
    def report_log(self, attempt_number: int, rank: int, node: str) -> Path | None:
        """Where a rank on that node logs its reports, if that is on this machine."""

    def has_reports_of(self, attempt_numbers: Iterable[int]) -> bool:
        """Whether what those attempts reported can be read without fetching it."""
        return True

    @property
    @abstractmethod
    def run_key(self) -> str:
        """The same for every driver of the run, and for no other run."""

    @abstractmethod
    def open(self) -> tuple[list[Record], list[Damage]]:
        """Read the journal and begin this epoch's part of it."""

    @abstractmethod
    def write(self, entries: Entries, then: Callable[[], None]) -> None:
        """Journal them; ``then`` is called in the loop when they, and all before them, are durable."""

    def write_soon(self, entries: Entries, then: Callable[[], None]) -> bool:
        """As ``write``, for many short writes: True if the entries outlive this process, and only after ``sync`` a
        power cut."""
        self.write(entries, then)
        return False

    def sync(self) -> None:  # noqa: B027
        """Make durable what was written soon."""

    @abstractmethod
    def write_last(self, entries: Entries) -> None:
        """Journal what a failing driver still has to say, if that is quick. May raise."""

    @abstractmethod
    def records(self) -> list[Record]:
        """The journal as it is now."""

    @abstractmethod
    def read_identity(self) -> dict[str, Any]: ...

    @abstractmethod
    def write_identity(self, identity: dict[str, Any]) -> None: ...

    @abstractmethod
    def take_stock(self, past: Past) -> tuple[list[ev.Event], list[Damage]]:
        """Clear away what crashes left, and say what makes the journal's view agree with what is stored."""

    def note_taken_up(self, manifests: list[Manifest], state: Durable) -> None:
        """``state``: what was known before that."""
        self._taken_up, self._known_before = manifests, 0 if state.newest is None else state.newest.report

    def late_reports(self) -> list[LateReport]:
        """What the last driver may not have told of, and is safe now."""
        return late_reports(self.home, self._taken_up, self._known_before)

    @abstractmethod
    def read_manifest(self, id: str) -> Manifest: ...

    @abstractmethod
    def commit(self, manifest: Manifest, shards: Sequence[Shard], sync_reports: Callable[[], None]) -> None:
        """``shards``: what ranks staged where the driver reaches it; else their nodes have uploaded it.
        ``sync_reports``: makes the history up to the checkpoint as durable as the checkpoint."""

    @abstractmethod
    def verify(self, id: str, fetch: Callable[[bytes], None]) -> None:
        """Say whether a checkpoint is intact; or call ``fetch`` with its manifest, in the loop, where nodes have to
        fetch the files to know."""

    @abstractmethod
    def adopt(
        self,
        manifest: Manifest,
        ranks: Sequence[RankReports],
        then: Callable[[ev.Committed, Manifest], None],
        lacks: Callable[[Manifest, Sequence[str]], None],
    ) -> None:
        """Commit what an earlier driver had on its nodes, and call ``then`` in the loop; or ``lacks``, with the files
        that are not all here. ``ranks``: what the last attempt logged, which that driver may not have heard."""

    def discard(self, attempt_number: int, index: int, world_size: int) -> None:  # noqa: B027
        """Remove what ranks staged for a report; where it is uploaded, their nodes do that."""

    def collect(self, keep: Collection[str]) -> None:  # noqa: B027
        """Remove what was there at the start and belongs to no checkpoint that is kept."""

    @abstractmethod
    def delete(self, id: str) -> None: ...

    @abstractmethod
    def quarantine(self, id: str, why: str) -> None: ...

    @abstractmethod
    def address(self, id: str) -> str:
        """A checkpoint's directory or URL."""

    @abstractmethod
    def log_address(self, attempt_number: int, rank: int) -> str: ...

    @abstractmethod
    def close(self, all_stored: bool) -> None:
        """End the threads, with what they have to do. ``all_stored``: the nodes have nothing that is still wanted."""

    @abstractmethod
    def release(self) -> None:
        """Let another driver in."""

    @property
    @abstractmethod
    def is_lost(self) -> bool:
        """Whether another driver has the run, or may have it. May ask storage."""

    @abstractmethod
    def check_lease(self) -> None:
        """Raise an error that says what happened if this driver has lost the run, so that it writes no more. Quick;
        any thread may call it."""

    def _submit(self, pool: ThreadPoolExecutor, job: Callable[[], Outcome]) -> None:
        def run() -> None:
            try:
                outcome = job()
            except Exception as error:
                # What is left behind is collected at the next start; it must not end a run that trains.
                log.warning("clean-up of the run's storage failed: %s", error)
            else:
                if outcome is not None:
                    self._inbox.put(outcome)

        self._jobs = {job for job in self._jobs if not job.done()} | {pool.submit(run)}


class DiskStorage(Storage):
    nodes_hold_files = False

    def __init__(self, home: RunLayout, inbox: Inbox, score_attribute: str | None) -> None:
        super().__init__(inbox, score_attribute)
        self.home = home
        self._disk = FencedDisk(self.check_lease)
        self._cleaning = ThreadPoolExecutor(max_workers=1, thread_name_prefix="holdfast-cleaning")
        self._run = DiskRun(home, self._disk)
        self._checkpoints = self._run.checkpoints
        self._journal: JournalWriter | None = None

    def acquire(self) -> int:
        self._lease = self._run.acquire()
        return self._lease.epoch

    @property
    def epoch(self) -> int:
        return self._lease.epoch

    def release(self) -> None:
        self._lease.release()

    def check_lease(self) -> None:
        self._lease.check()

    @property
    def is_lost(self) -> bool:
        return self._loss() is not None

    def settle(self, run_id: str) -> None:
        """What a run on disk has is in its directory."""

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

    def read_identity(self) -> dict[str, Any]:
        return self._run.read_identity()

    def write_identity(self, identity: dict[str, Any]) -> None:
        self._run.write_identity(identity)

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
                sync_reports()
                done = self._checkpoints.commit(manifest, shards, leave_rest=True)
            except Exception as error:
                failed = ev.CommitFailed(manifest.attempt_number, manifest.index, str(error) or repr(error))
                return self._loss() or failed
            self._submit(self._cleaning, lambda: self._checkpoints.discard(shards))
            return committed(done, self._score_attribute, manifest.index)

        self._submit(self._pool, job)

    def verify(self, id: str, fetch: Callable[[bytes], None]) -> None:
        """Damage sets the checkpoint aside; a store that cannot be read says nothing about it, and ends the run."""

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
        raise NotImplementedError("what an earlier driver left on disk is taken up with the stock")

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
        if all_stored:
            with contextlib.suppress(HoldfastError):
                self.check_lease()  # without it, what is staged is another driver's
                self._checkpoints.remove_staged()
        if self._journal is not None:
            self._journal.close()
