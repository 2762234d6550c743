"""A run whose page is open. Its journal is read again only when it has changed, and pages that ask at about the same
time share one look. The run is dropped when its last page is closed."""

from __future__ import annotations

import threading
import time
from typing import Any

from holdfast.runs.stored_run import StoredRun
from holdfast.web.run_view import RunView, glance, run_view

_SHARED_S = 0.5  # a page may use a look that began up to this long before


class WatchedRun:
    """Thread-safe."""

    def __init__(self, stored: StoredRun) -> None:
        """``stored``: opened for one look, and used only here."""
        self._stored, self._lock = stored, threading.Lock()
        self._stamp: Any = None
        self._view: RunView | None = None
        self._began = 0.0

    def glance(self) -> str:
        with self._lock:
            self._look_again()
            return glance(self._stored)

    def view(self) -> RunView:
        asked = time.monotonic()
        with self._lock:
            if self._view is None or self._began < asked - _SHARED_S:
                self._began = time.monotonic()
                self._look_again()
                self._view = run_view(self._stored)
            return self._view

    def _look_again(self) -> None:
        stamp = self._stored.journal_stamp()  # before the journal is read, so that a write in between changes the stamp
        is_same = stamp is not None and stamp == self._stamp and not self._stored.journal()[1]
        id = self._stored.run_id() if is_same else ""
        self._stored.look_again(keeps_journal=is_same)
        if is_same and id != self._stored.run_id():  # another run has taken its name
            self._stored.look_again()
        self._stamp = stamp
