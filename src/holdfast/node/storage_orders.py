"""The driver's orders for a node's files: seal, gather, upload, fetch, forget."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from holdfast.errors import CheckpointDamagedError
from holdfast.node.node_checkpoints import node_files
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import Offer


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
        self._files = node_files(session)
        self._save_logs_at = self._next_save(time.monotonic())
        self.layout = self._files.layout
        self._hands, self._answer, self._on_idle = hands, answer, on_idle
        self._jobs: set[Future[Any]] = set()
        self._lock = threading.Lock()  # for the rest of an order
        self._closing = self._dropped = False

    def unsaved(self) -> list[bytes]:
        return self._files.unsaved()

    def left(self) -> list[wire.LeftReports]:
        """The reports of the last attempt here. The driver reads them itself if it can reach the disk."""
        self._files.take_back()
        return [wire.LeftReports(*left) for left in self._files.left()]

    def offer(self, id: str) -> Offer:
        return Offer(id, str(self.layout.checkpoint_dir(id)) if self._files.has(id) else "")

    def resume_from(self, id: str | None) -> Offer | None:
        self._files.resume_from(id)
        return None if id is None else self.offer(id)

    def mark_durable(self, id: str) -> None:
        self._files.mark_durable(id)

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
            case wire.Forget(attempt_number, index, id):
                self.submit(lambda: self._files.forget(attempt_number, index, id))
            case wire.Sweep(attempt_number):
                self._files.sweep(attempt_number)

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
        if self._save_logs_at is not None and self._save_logs_at <= now:
            self._save_logs_at = self._next_save(now)
            self.submit(self._files.save_logs)

    def _next_save(self, now: float) -> float | None:
        every_s = self._files.save_logs_every_s
        return None if every_s is None else now + every_s

    def close_soon(self, over: bool) -> None:
        """Finish quickly, unless the run is ``over`` and its orders are still wanted."""
        self._closing, self._dropped = True, not over
        self._save_logs_at = None
        if not over:
            self._files.close(False)

    def wind_up(self) -> None:
        """The run is over and idle: upload its last log lines, and remove its files here."""
        self._files.wind_up(self.submit)

    def close(self, over: bool) -> None:
        self._files.close(over)

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
        try:
            sealed = self._files.seal(attempt_number, index, rank)
        except Exception as error:
            return wire.Sealed(attempt_number, rank, index, [], str(error) or repr(error))
        files = [(f.path, f.size, f.digest, f.at) for f in sealed]
        return wire.Sealed(attempt_number, rank, index, files)

    def _gather(self, order: wire.Gather) -> None:
        try:
            self._files.gather(order.id, order.attempt_number, order.index, order.manifest, order.parts)
        except OSError as error:
            self._answer(wire.StagedLost(order.id, f"its files could not be put together: {error}"))

    def _upload(self, order: wire.Upload) -> wire.RunNews:
        where = (order.attempt_number, order.index, order.ranks)
        try:
            self._files.upload(order.id)
        except FileNotFoundError as error:
            return wire.StagedLost(order.id, f"{error.filename} is gone")
        except CheckpointDamagedError as error:
            return wire.StagedLost(order.id, str(error))
        except Exception as error:
            return wire.Uploaded(*where, str(error) or repr(error))
        return wire.Uploaded(*where)

    def _fetch(self, order: wire.Fetch) -> wire.RunNews:
        try:
            self._files.fetch(order.id, order.manifest, order.stored)
        except CheckpointDamagedError as error:
            return wire.Fetched(order.id, str(error), damaged=True, number=order.number)
        except Exception as error:
            return wire.Fetched(order.id, str(error) or repr(error), number=order.number)
        return wire.Fetched(order.id, number=order.number)
