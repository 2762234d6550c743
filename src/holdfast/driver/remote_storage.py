"""A run's remote storage. The journal has its own thread. If storage does not answer, the driver still receives
messages of its workers and shows their progress, but acts on nothing that is not written yet."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import cloudpickle
from msgspec import structs

from holdfast.core.run import events as ev
from holdfast.core.run import reconciliation
from holdfast.core.run.staged_files import ON_NODES
from holdfast.engine.engine_interface import Inbox
from holdfast.errors import CheckpointDamagedError, ObjectMissingError, StorageError, StorageUnavailableError
from holdfast.runs.past import Past
from holdfast.store import scratch
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.store.manifests import Manifest, Shard, manifest_line
from holdfast.store.objects.base import ObjectStore
from holdfast.store.remote.object_run import ObjectRun
from holdfast.store.remote.parts import PartUploader, fetch
from holdfast.store.remote.remote_checkpoints import Listing
from holdfast.store.remote.remote_journal import RemoteJournal
from holdfast.store.remote.remote_lease import RemoteLease
from holdfast.store.report_log import RankReports
from holdfast.store.sealed import Damage

from .committed_events import committed, stored_of
from .late_reports import append_missing
from .recovery import FOUND_DAMAGED, GONE
from .storage import Entries, FindLog, NodeAddress, Outcome, Storage, log

_LAST_PATIENCE_S = 5.0
_CLEANED_UP_WITHIN_S = 60.0
_SAVE_REPORTS_EVERY_S = 10.0
_DRIVER = "driver"  # whose files in scratch they are, beside those of the nodes


class RemoteStorage(Storage):
    files = ON_NODES

    def __init__(
        self, location: Location, scratch_dir: Path, inbox: Inbox, score_attribute: str | None, patience_s: float
    ) -> None:
        """``scratch_dir``: the user's private directory on this machine."""
        super().__init__(inbox, score_attribute)
        self._location, self._scratch = location, scratch_dir
        self._run_dir: Path | None = None  # None until ``settle``
        self._patience_s = patience_s
        self._cleaning = ThreadPoolExecutor(max_workers=1, thread_name_prefix="holdfast-cleaning")
        self._writer: _JournalWriter | None = None
        self._saver: threading.Thread | None = None
        self._listing = Listing([], [], [])
        self._reports: dict[Path, PartUploader] = {}
        self._reports_lock = threading.Lock()
        self._over = threading.Event()
        self._manifests: dict[str, Manifest] = {}  # manifests that were read or written

    def acquire(self) -> int:
        self._reach()
        try:
            # The listing runs in parallel with the claim. It may miss what an earlier driver still commits until then,
            # as if that came after the claim.
            self._lease: RemoteLease = self._run.acquire(self._inbox.put, beside=self._list)
            self._journal, self._records, self._damage = self._lease.open_journal()
        except BaseException:
            self._objects.close()
            self._pool.shutdown(wait=False, cancel_futures=True)
            raise
        return self._lease.epoch

    def _reach(self) -> None:
        self._objects: ObjectStore = self._location.open(self._patience_s)
        self._run: ObjectRun = ObjectRun(self._location, self._objects, self._patience_s)
        self._checkpoints = self._run.checkpoints

    def _list(self) -> None:
        self._listed = self._pool.submit(self._checkpoints.listing)

    def settle(self, run_id: str) -> None:
        self._run_dir = scratch.epoch_directory(self._run_scratch(run_id), self.epoch)
        self.home = RunLayout(scratch.take_over(self._run_dir, _DRIVER))
        self._begin_saving()

    def _run_scratch(self, run_id: str) -> Path:
        return scratch.run_directory(self._scratch, self._location, run_id)

    @property
    def run_dir(self) -> Path:
        assert self._run_dir is not None
        return self._run_dir

    @property
    def run_key(self) -> str:
        return self.run_dir.parent.name

    def release(self) -> None:
        self._lease.release()
        self._objects.close()

    @property
    def is_lost(self) -> bool:
        """The files on this machine then belong to the other driver."""
        return self._lease.is_lost

    def check_lease(self) -> None:
        """A lost lease comes through the inbox, and the journal refuses writes of a driver that has lost the run."""

    def cause_of(self, error: Exception) -> Exception:
        return self._lease.cause_of(error)

    def open(self) -> tuple[list[Record], list[Damage]]:
        self._writer = _JournalWriter(self._journal, self._inbox)
        return list(self._records), self._damage

    def _begin_saving(self) -> None:
        self._saver = threading.Thread(target=self._keep_saving, name="holdfast-reports", daemon=True)
        self._saver.start()

    def write(self, entries: Entries, then: Callable[[], None]) -> None:
        assert self._writer is not None
        now = time.time()
        self._records += [Record(0, now, kind, dict(body)) for kind, body in entries]
        self._writer.write(entries, now, then)

    def write_last(self, entries: Entries) -> None:
        assert self._writer is not None
        self._writer.write(entries, time.time(), lambda: None)
        self._writer.close()

    def records(self) -> list[Record]:
        return self._records

    def take_stock(self, past: Past) -> tuple[list[ev.Event], list[Damage]]:
        """Reads only manifests that the journal does not know. For the others it is enough that they exist: they are
        verified before use."""
        self._listing = self._listed.result()
        known = {c.id for c in past.state.checkpoints}
        past.is_damaged = bool(self._damage)
        settled = known if past.is_damaged else known | past.retired
        manifests, damage = self._checkpoints.unknown(self._listing, settled, past.counts)
        gone = self._checkpoints.gone(sorted(known - set(self._listing.committed)))
        stored = [stored_of(manifest, self._score_attribute) for manifest in manifests]
        stock = reconciliation.reconcile(past.state, past.given_up, stored, dict.fromkeys(gone, GONE))
        for id in stock.damaged:  # unwanted ones are not kept, and so are collected
            self._checkpoints.quarantine(id, FOUND_DAMAGED)
        return list(stock.events), damage

    def collect(self, keep: Collection[str]) -> None:
        self._submit(self._cleaning, lambda: self._clean(keep))

    def _clean(self, keep: Collection[str]) -> None:
        self._checkpoints.collect(self._listing, keep)

    def read_manifest(self, id: str) -> Manifest:
        if id not in self._manifests:
            self._manifests[id] = self._checkpoints.read_manifest(id)
        return self._manifests[id]

    def report_log(self, attempt_number: int, rank: int, node: str) -> Path | None:
        """Nodes of other machines have nothing below this path."""
        return RunLayout(self.run_dir / node).report_log(attempt_number, rank)

    def report_logs_here(self, is_this_machine: bool) -> FindLog:
        return self.report_log if is_this_machine else lambda *_: None

    def node_address(self) -> NodeAddress:
        return NodeAddress(cloudpickle.dumps(self._location), str(self._scratch))

    def has_reports_of(self, attempt_numbers: Iterable[int]) -> bool:
        return all(self.home.metrics_file(attempt_number, 0).exists() for attempt_number in attempt_numbers)

    def verify(self, id: str, fetch: Callable[[bytes], None]) -> None:
        def job() -> Outcome:
            try:
                line = manifest_line(self._checkpoints.read_manifest(id))
            except (CheckpointDamagedError, ObjectMissingError) as error:
                return ev.Damaged(id, str(error))
            except Exception as error:
                return StorageError(f"{id} could not be read: {error}")
            return lambda: fetch(line)

        self._submit(self._pool, job)

    def commit(self, manifest: Manifest, shards: Sequence[Shard], sync_reports: Callable[[], None]) -> None:
        """The reports are saved with the manifest, whether they are on disk or not."""

        def job() -> Outcome:
            try:
                return committed(self._commit(manifest), self._score_attribute, manifest.index)
            except StorageUnavailableError as error:
                return ev.UploadFailed(manifest.attempt_number, manifest.index, str(error))
            except Exception as error:
                return ev.CommitFailed(manifest.attempt_number, manifest.index, str(error) or repr(error))

        self._submit(self._pool, job)

    def adopt(
        self,
        manifest: Manifest,
        ranks: Sequence[RankReports],
        then: Callable[[ev.Committed, Manifest], None],
        lacks: Callable[[Manifest, Sequence[str]], None],
    ) -> None:
        def job() -> Outcome:
            try:
                missing = self._checkpoints.missing(manifest)
                if missing:
                    return lambda: lacks(manifest, missing)
                self._write_down(manifest, ranks)
                event = committed(self._commit(manifest), self._score_attribute, index=-1)
            except Exception as error:
                return error
            return lambda: then(event, manifest)

        self._submit(self._pool, job)

    def _write_down(self, manifest: Manifest, ranks: Sequence[RankReports]) -> None:
        """The metrics of all reports up to that checkpoint's, after those that storage already has."""
        for rank in range(len(ranks)):
            path = self.home.metrics_file(manifest.attempt_number, rank)
            stored = b"" if path.exists() else fetch(self._objects, self.home.relative(path))
            if stored:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(stored)
        append_missing(self.home, manifest.attempt_number, ranks, manifest.index)

    def _commit(self, manifest: Manifest) -> Manifest:
        self.save_reports()  # the history up to a checkpoint is as durable as the checkpoint
        done = self._checkpoints.commit(structs.replace(manifest, epoch=self.epoch))
        self._manifests[done.id] = done
        return done

    def delete(self, id: str) -> None:
        def job() -> None:
            files = self.read_manifest(id).files
            self._manifests.pop(id, None)
            self._checkpoints.delete(id, [entry.key(id) for entry in files if entry.at])

        self._submit(self._cleaning, job)

    def quarantine(self, id: str, why: str) -> None:
        self._submit(self._cleaning, lambda: self._checkpoints.quarantine(id, why))

    def address(self, id: str) -> str:
        return str(self._location / "checkpoints" / id)

    def log_address(self, attempt_number: int, rank: int) -> str:
        return f"{self._location}/{self.home.relative(self.home.log_file(attempt_number, rank))}"

    def save_reports(self) -> None:
        with self._reports_lock:
            for path in sorted(self.home.metrics_dir.rglob("*.jsonl")):
                if path not in self._reports:
                    self._reports[path] = PartUploader(self._objects, self.home.relative(path), path)
                self._reports[path].sync()

    def _keep_saving(self) -> None:
        """So that a lost machine loses few reports without a checkpoint."""
        while not self._over.wait(_SAVE_REPORTS_EVERY_S):
            with contextlib.suppress(StorageError, OSError):
                self.save_reports()

    def close(self, all_stored: bool) -> None:
        self._over.set()
        saved = self._save_the_rest()
        if self._writer is not None:
            self._writer.close()
        if self._saver is not None:
            self._saver.join(_LAST_PATIENCE_S)
        wait(self._jobs, _CLEANED_UP_WITHIN_S)
        for pool in (self._pool, self._cleaning):
            pool.shutdown(wait=False, cancel_futures=True)
        # Also files of a node that was killed at the end. A driver that has lost the run removes nothing.
        if saved and self._run_dir is not None and not self.is_lost:
            scratch.remove(self._run_dir, owner=None if all_stored else _DRIVER)

    def _save_the_rest(self) -> bool:
        if self._run_dir is None:
            return True
        try:
            self.save_reports()
        except (StorageError, OSError) as error:
            log.warning("reports that could not be uploaded are kept in %s: %s", self.home.metrics_dir, error)
            return False
        return True


class _JournalWriter:
    """Appends in the order in which it is asked, in its own thread; says in the loop when it is done."""

    def __init__(self, journal: RemoteJournal, inbox: Inbox) -> None:
        self._journal, self._inbox = journal, inbox
        self._queue: queue.SimpleQueue[tuple[Entries, float, Callable[[], None]] | None] = queue.SimpleQueue()
        self._unwritten = 0  # counted in the loop
        self._thread = threading.Thread(target=self._run, name="holdfast-journal", daemon=True)
        self._thread.start()

    def write(self, entries: Entries, now: float, then: Callable[[], None]) -> None:
        if not entries and not self._unwritten:
            then()
            return
        self._unwritten += 1
        self._queue.put((entries, now, lambda: self._written(then)))

    def _written(self, then: Callable[[], None]) -> None:
        self._unwritten -= 1
        then()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            entries, now, then = item
            try:
                if entries:
                    self._journal.append(entries, now)
            except Exception as error:
                self._inbox.put(error)
                return
            self._inbox.put(then)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join(_LAST_PATIENCE_S)
