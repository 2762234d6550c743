"""Reports leave a worker in the order in which they were made, each after the uploads that come before it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

Job = Callable[[], None]


class ReportOutbox:
    """Runs jobs one after another: in the caller's thread if no job waits, otherwise in a background thread."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self._changed = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._is_running = False
        self._error: BaseException | None = None

    def put(self, job: Job, behind: bool = False) -> None:
        """Run the job, or queue it if others wait. ``behind``: never run it in the caller's thread. If a job has
        failed, this raises its exception, and later jobs do not run."""
        with self._changed:
            self._check()
            if behind or self._jobs or self._is_running:
                self._jobs.append(job)
                if not self._is_running:
                    self._is_running = True
                    threading.Thread(target=self._run, name="holdfast-uploads", daemon=True).start()
                return
        job()

    @property
    def is_idle(self) -> bool:
        """Whether no job waits, runs or has failed. The only caller of ``put`` may then do its job itself, and save the
        cost of the lock."""
        return not (self._is_running or self._jobs or self._error)

    @property
    def is_empty(self) -> bool:
        with self._changed:
            return not self._jobs and not self._is_running

    def drain(self, timeout_s: float | None = None) -> bool:
        """Wait until every job has run. Returns whether that happened within the time."""
        with self._changed:
            done = self._changed.wait_for(lambda: not (self._jobs or self._is_running), timeout_s)
            self._check()
            return done

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while (job := self._next()) is not None:
                job()
        except BaseException as error:
            with self._changed:
                self._error, self._is_running = error, False
                self._jobs.clear()
                self._changed.notify_all()
            self._on_error(error)

    def _next(self) -> Job | None:
        with self._changed:
            if self._jobs:
                return self._jobs.popleft()
            self._is_running = False
            self._changed.notify_all()
            return None
