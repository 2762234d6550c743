"""The searches that pages show. A small one is read on request; a large one is first read in the background."""

from __future__ import annotations

import contextlib
import threading

from holdfast.errors import HoldfastError
from holdfast.runs.stored_experiment import StoredExperiment
from holdfast.web.recent import Recent
from holdfast.web.search_index import SearchIndex, SearchSnapshot

_SEARCHES = 6
_AFTER_PAINT_S = 0.4  # the page loads its styles and scripts first, and Python runs one thread at a time


class Searches:
    def __init__(self) -> None:
        self._indexes: Recent[SearchIndex] = Recent(_SEARCHES)
        self._reading: set[str] = set()

    def index(self, stored: StoredExperiment) -> SearchIndex:
        return self._indexes.use(str(stored.location), stored.run_id(), lambda: SearchIndex(stored))

    def look(self, stored: StoredExperiment) -> SearchSnapshot:
        return self.index(stored).look()

    def glance(self, stored: StoredExperiment, reads: bool = True) -> SearchSnapshot | None:
        """What is known without waiting; None until a large search has been read once. ``reads``: start to read it in
        the background, for a page that does not request the data itself."""
        index, key = self.index(stored), str(stored.location)
        if index.is_quick:
            return index.look()
        if reads and key not in self._reading:
            self._reading.add(key)
            timer = threading.Timer(_AFTER_PAINT_S, self._read, (index, key))
            timer.daemon = True
            timer.start()
        return index.last

    def _read(self, index: SearchIndex, key: str) -> None:
        try:
            with contextlib.suppress(HoldfastError, OSError):  # the page shows the error itself
                index.look()
        finally:
            self._reading.discard(key)
