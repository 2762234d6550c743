"""The driver's storage thread: commits, verifies and deletes, one after the other, so that the loop never waits for it.

What comes of it goes into the inbox: events of the core, or the error that ends the run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from holdfast.core import commands as do
from holdfast.core import events as ev
from holdfast.engine.base import Inbox
from holdfast.errors import CheckpointDamagedError, StorageError
from holdfast.store.checkpoints import FORMAT, CheckpointStore, Manifest, Shard
from holdfast.store.disk import Disk
from holdfast.store.layout import RunLayout

from .recovery import committed

log = logging.getLogger(__name__)


class StorageThread:
    def __init__(self, layout: RunLayout, inbox: Inbox, score_attribute: str | None) -> None:
        self.store = CheckpointStore(layout)
        self._layout = layout
        self._inbox = inbox
        self._score_attribute = score_attribute
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="holdfast-storage")

    def commit(self, command: do.Commit, shards: Sequence[Shard], metrics: Any, validation: Any) -> None:
        def job() -> ev.Event:
            where = (command.id, command.generation, command.index, command.report, command.world_size)
            manifest = Manifest(FORMAT, *where, created=time.time(), metrics=metrics, files=[], validation=validation)
            try:
                manifest = self.store.commit(manifest, shards)
            except Exception as error:
                return ev.CommitFailed(command.generation, command.index, str(error) or repr(error))
            return committed(manifest, self._score_attribute, command.index)

        self._submit(job)

    def verify(self, id: str) -> None:
        """Damage sets the checkpoint aside; a store that cannot be read says nothing about it, and ends the run."""

        def job() -> ev.Event | StorageError:
            try:
                self.store.verify(id)
            except CheckpointDamagedError as error:
                return ev.Damaged(id, str(error))
            except Exception as error:
                return StorageError(f"{id} could not be read: {error}")
            return ev.Verified(id)

        self._submit(job)

    def delete(self, id: str) -> None:
        self._submit(lambda: self.store.delete(id))

    def quarantine(self, id: str, why: str) -> None:
        self._submit(lambda: self.store.quarantine(id, why))

    def discard(self, generation: int, index: int, world_size: int) -> None:
        def job() -> None:
            for rank in range(world_size):
                directory = self._layout.shard_dir(generation, index, rank)
                if directory.exists():
                    Disk().rmtree(directory)

        self._submit(job)

    def _submit(self, job: Callable[[], ev.Event | StorageError | None]) -> None:
        def run() -> None:
            try:
                event = job()
            except Exception as error:
                # What is left behind is collected at the next start; it must not end a run that trains.
                log.warning("clean-up in %s failed: %s", self._layout.root, error)
            else:
                if event is not None:
                    self._inbox.put(event)

        self._pool.submit(run)

    def close(self) -> None:
        self._pool.shutdown(wait=True)
