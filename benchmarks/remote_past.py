"""A run on S3 with many past checkpoints: how long it takes to open it, to commit one more, and to retire one.

Each goes the driver's own way. The past is written as a driver writes it: a file, a manifest and a record for each.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.core.run import events as ev
from holdfast.core.run.state import CheckpointRecord, RunSpec
from holdfast.driver.remote_storage import RemoteStorage
from holdfast.runs.past import read_past
from holdfast.store.location import Location
from holdfast.store.manifests import FORMAT, Manifest
from holdfast.store.objects.base import ObjectStore
from holdfast.store.parallel import in_parallel
from holdfast.store.remote.remote_checkpoints import RemoteCheckpoints
from holdfast.store.remote.remote_journal import RemoteJournal
from holdfast.store.staging import FileEntry

PATIENCE_S = 60.0
CONTENT = b"weights"
DIGEST = "0" * 32


def name(report: int) -> str:
    return f"checkpoint_{report:06d}"


def manifest(report: int) -> Manifest:
    files = [FileEntry("weights.bin", len(CONTENT), DIGEST)]
    where = (FORMAT, name(report), 1, report - 1, report, 1)
    return Manifest(*where, created=time.time(), metrics={"step": report}, files=files, epoch=1)


def record(report: int) -> ev.Committed:
    return ev.Committed(CheckpointRecord(name(report), report), 1, report - 1)


def journalled(*events: ev.Event) -> list[tuple[str, dict[str, Any]]]:
    return [ev.journalled(event) for event in events]


def put_file(objects: ObjectStore, report: int) -> None:
    objects.put(f"checkpoints/{name(report)}/weights.bin", CONTENT)


class PastRun:
    """A run that has committed ``count`` checkpoints and keeps the last ``kept`` of them."""

    def __init__(self, location: Location, scratch: Path, count: int, kept: int) -> None:
        self._location, self._scratch, self._last, self._kept = location, scratch, count, kept
        objects = location.open(PATIENCE_S)
        journal, _, _ = RemoteJournal.open(objects, "past")
        began = ev.DriverStarted(1, RunSpec(nodes_hold_files=True, num_to_keep=kept))
        journal.append(journalled(began, ev.AttemptStarted(1, 1, None, 0)), 0.0)

        def add(report: int) -> None:
            put_file(objects, report)
            RemoteCheckpoints(objects).commit(manifest(report))

        in_parallel(add, range(count - kept + 1, count + 1))
        for report in range(1, count + 1):
            journal.append(journalled(record(report)), time.time())
        objects.close()

    def measure(self) -> dict[str, float]:
        """Seconds for each."""
        inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        storage = RemoteStorage(self._location, self._scratch, inbox, None, PATIENCE_S)
        objects = self._location.open(PATIENCE_S)
        self._last += 1
        put_file(objects, self._last)
        try:
            return {
                "open": seconds(lambda: self._open(storage)),
                "commit": seconds(lambda: self._commit(storage, inbox)),
                "retire": seconds(lambda: RemoteCheckpoints(objects).delete(name(self._last - self._kept))),
            }
        finally:
            storage.close(True)
            storage.release()
            objects.close()

    def _open(self, storage: RemoteStorage) -> None:
        storage.acquire()
        records, damage = storage.open()
        past = read_past(records)
        found, more = storage.take_stock(past)
        assert past.state.newest is not None
        assert len(past.state.checkpoints) == self._kept
        assert not [*damage, *more, *found]

    def _commit(self, storage: RemoteStorage, inbox: queue.SimpleQueue[Any]) -> None:
        storage.commit(manifest(self._last))
        committed = inbox.get(timeout=PATIENCE_S)
        assert isinstance(committed, ev.Committed), committed
        storage.write(journalled(committed), lambda: None)
        inbox.get(timeout=PATIENCE_S)()


def seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began
