"""Work that a driver does not wait for: one thread does it in order, and logs its errors as warnings."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)
_MOST = 100_000  # jobs that may wait
_LAST_S = 30.0  # how long the end waits for pending jobs

Work = Callable[[], None]


class Sender:
    def __init__(self, name: str, last_s: float = _LAST_S) -> None:
        self._name, self._last_s = name, last_s
        self._waiting: queue.Queue[Work | None] = queue.Queue(_MOST)
        self._in_trouble = False
        self._thread = threading.Thread(target=self._send, name=f"holdfast-{name}", daemon=True)
        self._thread.start()

    def put(self, work: Work) -> None:
        try:
            self._waiting.put_nowait(work)
        except queue.Full:
            self._warn(f"{_MOST:,} reports are waiting to be logged, so new ones are dropped")

    def close(self) -> None:
        """Finish the pending jobs, within a time limit."""
        try:
            self._waiting.put(None, timeout=self._last_s)
        except queue.Full:
            pass
        else:
            self._thread.join(self._last_s)
        if self._thread.is_alive():
            log.warning("%s: about %d reports were not logged in time", self._name, self._waiting.qsize())

    def _send(self) -> None:
        while (work := self._waiting.get()) is not None:
            try:
                work()
                self._in_trouble = False
            except Exception as error:
                self._warn(f"a report was not logged, and training continues: {type(error).__name__}: {error}")

    def _warn(self, text: str) -> None:
        """Warn once, and again only after it has worked in between."""
        if not self._in_trouble:
            log.warning("%s: %s", self._name, text)
        self._in_trouble = True
