"""The driver's orders for a node's files: seal staged files; with remote storage, gather, upload, fetch, forget."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle

from holdfast.errors import CheckpointDamagedError
from holdfast.node.node_checkpoints import NodeCheckpoints
from holdfast.private_dirs import make_private
from holdfast.store import report_log
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.layout import RunLayout
from holdfast.store.scratch import REMEDY, take_over
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import Offer

_SAVE_LOGS_EVERY_S = 10.0
_WRITERS_END_WITHIN_S = 5.0


class StorageThreads:
    """The few threads that hash and move the files of all runs."""

    def __init__(self) -> None:
        self.files = ThreadPoolExecutor(max_workers=2, thread_name_prefix="holdfast-files")
        self.transfers = ThreadPoolExecutor(max_workers=3, thread_name_prefix="holdfast-storage")

        self.snapshots = ThreadPoolExecutor(max_workers=4, thread_name_prefix="holdfast-snapshots")

    def close(self, wait: bool) -> None:
        for pool in (self.files, self.transfers, self.snapshots):
            pool.shutdown(wait=wait, cancel_futures=True)  # hashing a large file takes its time


class StorageOrders:
    """The file orders of one run. Answers go through ``answer``, from any thread; ``on_idle`` is called when the run is
    closing and idle."""

    def __init__(
        self,
        session: wire.Configure,
        hands: StorageThreads,
        answer: Callable[[wire.RunNews], None],
        on_idle: Callable[[], None] = lambda: None,
    ) -> None:
        home = Path(session.run_dir)
        self._checkpoints: NodeCheckpoints | None = None
        self._save_logs_at: float | None = None
        if session.storage:
            make_private(Path(session.scratch), REMEDY)
            # Workers of an earlier driver may live a moment longer. Their reports until then are adopted too.
            logs = home.parent.glob(f"epoch-*/{session.node_id}/.staging/attempt-*/rank-*.jsonl")
            report_log.await_writers(logs, _WRITERS_END_WITHIN_S)
            home = take_over(home, session.node_id)
            self._checkpoints = NodeCheckpoints(
                home, lambda: cloudpickle.loads(session.storage).open(session.patience_s)
            )
            self._save_logs_at = time.monotonic() + _SAVE_LOGS_EVERY_S
        self.layout = RunLayout(home)
        self._store = CheckpointStore(self.layout)
        self._hands, self._answer, self._on_idle = hands, answer, on_idle
        self._jobs: set[Future[Any]] = set()
        self._lock = threading.Lock()  # for the rest of an order
        self._closing = self._dropped = False

    def unsaved(self) -> list[bytes]:
        return [] if self._checkpoints is None else self._checkpoints.unsaved()

    def left(self) -> list[wire.LeftReports]:
        """The reports of the last attempt here. The driver reads them itself if it can reach the disk."""
        if self._checkpoints is None:
            return []
        self._checkpoints.take_back()
        return [wire.LeftReports(*left) for left in self._checkpoints.left()]

    def offer(self, id: str) -> Offer:
        here = self._checkpoints is None or self._checkpoints.has(id)
        return Offer(id, str(self.layout.checkpoint_dir(id)) if here else "")

    def resume_from(self, id: str | None) -> Offer | None:
        if self._checkpoints is not None:
            self._checkpoints.resume_from(id)
        return None if id is None else self.offer(id)

    def mark_durable(self, id: str) -> None:
        if self._checkpoints is not None:
            self._checkpoints.mark_durable(id)

    def serve(self, order: Any) -> None:
        match order:
            case wire.Seal():
                self._seal(order)
            case wire.Gather():
                self._gather(order)
            case wire.Upload():
                self._do(self._hands.transfers, lambda: self._dropped or self._answer(self._upload(order)))
            case wire.Fetch():
                self._do(self._hands.transfers, lambda: self._dropped or self._answer(self._fetch(order)))
            case wire.Forget(attempt_number, index, id) if self._checkpoints is not None:
                checkpoints = self._checkpoints
                self.submit(lambda: checkpoints.forget(attempt_number, index, id))
            case wire.Sweep(attempt_number) if self._checkpoints is not None:
                self._checkpoints.sweep(attempt_number)

    def submit(self, work: Callable[[], None]) -> None:
        """Do something with files, soon."""
        self._do(self._hands.files, work)

    def submit_snapshot(self, work: Callable[[], None]) -> None:
        """Do something with a snapshot in memory soon, even if storage is busy."""
        self._do(self._hands.snapshots, work)

    def _do(self, pool: Executor, work: Callable[[], object]) -> None:
        job = pool.submit(work)
        self._jobs.add(job)
        job.add_done_callback(self._done)

    def _done(self, job: Future[Any]) -> None:
        self._jobs.discard(job)
        if self._closing and not self._jobs:
            self._on_idle()

    @property
    def is_idle(self) -> bool:
        return not self._jobs

    def due(self) -> float | None:
        return self._save_logs_at

    def on_time(self, now: float) -> None:
        if self._checkpoints is not None and self._save_logs_at is not None and self._save_logs_at <= now:
            self._save_logs_at = now + _SAVE_LOGS_EVERY_S
            self.submit(self._checkpoints.save_logs)

    def close_soon(self, over: bool) -> None:
        """Finish quickly, unless the run is ``over`` and its orders are still wanted."""
        self._closing, self._dropped = True, not over
        self._save_logs_at = None
        if self._checkpoints is not None and not over:
            self._checkpoints.close(False)

    def wind_up(self) -> None:
        """The run is over and idle: upload its last log lines, and remove its files here."""
        if self._checkpoints is not None:
            self.submit(lambda: self.close(True))

    def close(self, over: bool) -> None:
        if self._checkpoints is not None:
            if over:
                self._checkpoints.save_logs()
            self._checkpoints.close(over)

    def _seal(self, order: wire.Seal) -> None:
        jobs = [self._hands.files.submit(self._sealed, order.attempt_number, rank, order.index) for rank in order.ranks]
        left = set(jobs)

        def done(job: Future[Any]) -> None:
            """Called for each job, in any thread; the last one answers."""
            with self._lock:
                left.discard(job)
                is_last = not left
            if is_last and not self._dropped and not any(job.cancelled() for job in jobs):
                sealed = [job.result() for job in jobs]
                self._answer(sealed[0] if len(sealed) == 1 else wire.NodeNews([*sealed]))
            self._done(job)

        self._jobs.update(jobs)
        for job in jobs:
            job.add_done_callback(done)

    def _sealed(self, attempt_number: int, rank: int, index: int) -> wire.Sealed:
        where = (attempt_number, index, rank)
        try:
            sealed = (
                self._checkpoints.seal(*where) if self._checkpoints else self._store.seal(self.layout.shard_dir(*where))
            )
        except Exception as error:
            return wire.Sealed(attempt_number, rank, index, [], str(error) or repr(error))
        files = [(f.path, f.size, f.digest, f.at) for f in sealed]
        return wire.Sealed(attempt_number, rank, index, files)

    def _gather(self, order: wire.Gather) -> None:
        assert self._checkpoints is not None
        try:
            self._checkpoints.gather(order.id, order.attempt_number, order.index, order.manifest, order.parts)
        except OSError as error:
            self._answer(wire.StagedLost(order.id, f"its files could not be put together: {error}"))

    def _upload(self, order: wire.Upload) -> wire.RunNews:
        assert self._checkpoints is not None
        where = (order.attempt_number, order.index, order.ranks)
        try:
            self._checkpoints.upload(order.id)
        except FileNotFoundError as error:
            return wire.StagedLost(order.id, f"{error.filename} is gone")
        except CheckpointDamagedError as error:
            return wire.StagedLost(order.id, str(error))
        except Exception as error:
            return wire.Uploaded(*where, str(error) or repr(error))
        return wire.Uploaded(*where)

    def _fetch(self, order: wire.Fetch) -> wire.RunNews:
        assert self._checkpoints is not None
        try:
            self._checkpoints.fetch(order.id, order.manifest, order.stored)
        except CheckpointDamagedError as error:
            return wire.Fetched(order.id, str(error), damaged=True, number=order.number)
        except Exception as error:
            return wire.Fetched(order.id, str(error) or repr(error), number=order.number)
        return wire.Fetched(order.id, number=order.number)
