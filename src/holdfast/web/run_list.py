"""The rows of the list of all runs, kept between requests. A run without a driver is read again only when it has
changed, and a page does not wait until all runs have been read."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.runs.discovery import READ_PATIENCE_S
from holdfast.runs.stored_run import StoredRun
from holdfast.store.location import Location
from holdfast.store.parallel import in_parallel
from holdfast.web.run_rows import NONSENSE, READING, RunRow, run_row
from holdfast.web.searches import Searches
from holdfast.web.storages import Storages

_MOST = 20_000  # rows that are kept


@dataclass(frozen=True)
class _KnownRow:
    stamp: Any  # None: it may change at any time
    row: RunRow


class RunList:
    """Thread-safe."""

    def __init__(self, storages: Storages, searches: Searches) -> None:
        self._storages, self._searches = storages, searches
        self._known: dict[str, _KnownRow] = {}
        self._lock = threading.Lock()

    def rows(self, within_s: float | None = None) -> list[RunRow]:
        """The rows of all runs: running ones first, then by their last change. A run that could not be read in that
        time has its previous row, or a row with only its name."""
        deadline = None if within_s is None else time.monotonic() + within_s
        found = self._storages.runs()
        rows = in_parallel(lambda pair: self._row(*pair, deadline), found)
        with self._lock:
            there = {address for address, _ in found[:_MOST]}
            self._known = {address: known for address, known in self._known.items() if address in there}
        return sorted(rows, key=lambda row: (row.state != "running", -(row.changed or 0)))

    def _row(self, address: str, location: Location, deadline: float | None) -> RunRow:
        known = self._known.get(address)
        if deadline is not None and time.monotonic() > deadline:
            if known is not None:
                return known.row
            return RunRow(address, location.name, str(location), state=READING, progress_text="not read yet")
        stamp = _stamp(location)
        if known is not None and stamp is not None and known.stamp == stamp:
            return known.row
        row = run_row(address, location, self._searches)
        with self._lock:
            self._known[address] = _KnownRow(None if row.state in (READING, "unreadable") else stamp, row)
        return row


def _stamp(location: Location) -> Any:
    """Stays the same as long as the row does: the id of a run without a driver, whether run.json is intact, and its
    journal's stamp. None if it is unknown, or costs as much as reading the run."""
    stored = StoredRun(location, READ_PATIENCE_S, once=True)
    try:
        stamp = stored.store.journal_stamp()
        if stamp is None or stored.driver() is not None:
            return None
        return stored.identity().get("id"), bool(stored.run_file_damage()), stamp
    except (HoldfastError, OSError, *NONSENSE):
        return None
