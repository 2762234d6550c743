"""The run's storage as the driver uses it; ``disk_storage`` and ``remote_storage`` implement it.

Slow work is done by separate threads, so that the loop never waits for it; the results go into the inbox: events of the
core, callables for the loop, or the error that ends the run.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.core.run import events as ev
from holdfast.core.run.staged_files import StagedFiles
from holdfast.core.run.state import Durable
from holdfast.engine.engine_interface import Inbox
from holdfast.runs.past import Past
from holdfast.store.interfaces import DriverLease, RunStore
from holdfast.store.interfaces import Entries as Entries
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout
from holdfast.store.manifests import Manifest, Shard
from holdfast.store.report_log import RankReports
from holdfast.store.sealed import Damage

from .late_reports import LateReport, late_reports

log = logging.getLogger(__name__)
FindLog = Callable[[int, int, str], Path | None]  # of an attempt and a rank on a node
Outcome = ev.Event | Exception | Callable[[], None] | None


class NodeAddress(NamedTuple):
    """What a node needs to know to upload files; empty if it uploads none."""

    location: bytes = b""  # a cloudpickle of it
    scratch: str = ""


class Storage(ABC):
    """``home`` holds the files that the driver writes on its own machine: all of the run, or those that are yet to be
    uploaded. With remote storage it is known after ``settle``."""

    home: RunLayout

    files: StagedFiles  # where they are until a checkpoint is committed
    _run: RunStore
    _lease: DriverLease
    has_reports_too = False  # they are also in the journal, so that nothing waits until their files are synced

    def __init__(self, inbox: Inbox, score_attribute: str | None) -> None:
        self._inbox = inbox
        self._score_attribute = score_attribute
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="holdfast-commit")
        self._jobs: set[Future[None]] = set()
        self._taken_up: list[Manifest] = []  # checkpoints that the last driver had not committed, and this one has
        self._known_before = 0  # the newest report that was safe without that

    @abstractmethod
    def acquire(self) -> int:
        """Take the lease, or raise RunInUseError; the epoch that begins with it."""

    @property
    def epoch(self) -> int:
        """The epoch that began with this driver."""
        return self._lease.epoch

    @abstractmethod
    def settle(self, run_id: str) -> None:
        """The run's id is known: take over the files of an earlier driver on this machine."""

    @property
    @abstractmethod
    def run_dir(self) -> Path:
        """The run's directory; with remote storage, where nodes have theirs for it in this epoch."""

    @abstractmethod
    def report_log(self, attempt_number: int, rank: int, node: str) -> Path | None:
        """Where a rank on that node logs its reports, if that is on this machine."""

    def report_logs_here(self, is_this_machine: bool) -> FindLog:
        """As ``report_log``, for nodes that are all on this machine or not."""
        return self.report_log

    def node_address(self) -> NodeAddress:
        return NodeAddress()

    def has_reports_of(self, attempt_numbers: Iterable[int]) -> bool:
        """Whether what those attempts reported can be read without fetching it."""
        return True

    @property
    @abstractmethod
    def run_key(self) -> str:
        """A key that is the same for every driver of the run and different for all other runs."""

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
        """Sync what ``write_soon`` wrote to durable storage, so that it survives a power cut."""

    @abstractmethod
    def write_last(self, entries: Entries) -> None:
        """Journal the last records of a failing driver, if that is quick. May raise."""

    @abstractmethod
    def records(self) -> list[Record]:
        """The journal as it is now."""

    def read_identity(self) -> dict[str, Any]:
        return self._run.read_identity()

    def write_identity(self, identity: dict[str, Any]) -> None:
        self._run.write_identity(identity)

    @abstractmethod
    def take_stock(self, past: Past) -> tuple[list[ev.Event], list[Damage]]:
        """Clear away leftovers of crashes, and return the events that make the journal's view agree with storage."""

    def note_taken_up(self, manifests: list[Manifest], state: Durable) -> None:
        """``state``: the state before that."""
        self._taken_up, self._known_before = manifests, 0 if state.newest is None else state.newest.report

    def late_reports(self) -> list[LateReport]:
        """Reports that the last driver may not have delivered, and that are safe now."""
        return late_reports(self.home, self._taken_up, self._known_before)

    @abstractmethod
    def read_manifest(self, id: str) -> Manifest: ...

    @abstractmethod
    def commit(self, manifest: Manifest, shards: Sequence[Shard], sync_reports: Callable[[], None]) -> None:
        """``shards``: files that ranks staged where the driver reaches them; otherwise their nodes have uploaded them.
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
        """Commit the checkpoints that an earlier driver had on its nodes, and call ``then`` in the loop; or ``lacks``,
        with the files that are missing here. ``ranks``: the logs of the last attempt, which that driver may not have
        received."""

    def discard(self, attempt_number: int, index: int, world_size: int) -> None:  # noqa: B027
        """Remove what ranks staged for a report; where it is uploaded, their nodes do that."""

    def collect(self, keep: Collection[str]) -> None:  # noqa: B027
        """Remove files that were there at the start and belong to no checkpoint that is kept."""

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
        """End the threads after their remaining work. ``all_stored``: the nodes have no files that are still needed."""

    @abstractmethod
    def release(self) -> None:
        """Release the lease: another driver may take the run."""

    @property
    @abstractmethod
    def is_lost(self) -> bool:
        """Whether another driver has the run, or may have it. May ask storage."""

    @abstractmethod
    def check_lease(self) -> None:
        """Raise an error that says what happened if this driver has lost the run, so that it stops writing. Fast, and
        thread-safe."""

    def cause_of(self, error: Exception) -> Exception:
        """Why the driver cannot continue. If it has lost the run, that explains all other errors."""
        return error

    def _submit(self, pool: ThreadPoolExecutor, job: Callable[[], Outcome]) -> None:
        def run() -> None:
            try:
                outcome = job()
            except Exception as error:
                # Leftovers are collected at the next start; this must not end a run that trains.
                log.warning("clean-up of the run's storage failed: %s", error)
            else:
                if outcome is not None:
                    self._inbox.put(outcome)

        self._jobs = {job for job in self._jobs if not job.done()} | {pool.submit(run)}
