"""What pages know of a search, kept between requests. Its journal is read again only when it has grown."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from holdfast.core.metric_names import flat_items, metric_number
from holdfast.runs.experiments import trials_wanted
from holdfast.runs.search_history import SearchHistory
from holdfast.runs.stored_experiment import StoredExperiment
from holdfast.store.interfaces import LivingDriver
from holdfast.store.sealed import Damage
from holdfast.ui.display_picture import headline
from holdfast.web import wording

_QUICK_BYTES = 2 << 20  # a journal up to this size is read quickly
ENDED = ("TERMINATED", "ERROR")


@dataclass(frozen=True)
class SearchRow:
    id: str
    name: str
    directory: str
    status: str
    iteration: int
    value: float | None  # its best result; without a metric and mode, its last one
    last: float | None
    params: Mapping[str, Any]
    seconds: float
    changed: float
    error: str
    reason: str

    @property
    def text(self) -> str:
        """The text that a filter searches."""
        params = " ".join(f"{name}={value}" for name, value in self.params.items())
        return f"{self.name} {self.status} {params} {self.error} {self.reason}".casefold()


@dataclass(frozen=True)
class SearchSnapshot:
    """A search as one look found it."""

    version: str
    identity: Mapping[str, Any]
    history: SearchHistory
    rows: tuple[SearchRow, ...]
    driver: LivingDriver | None
    damage: tuple[Damage, ...] = ()

    @property
    def state(self) -> str:
        return "running" if self.driver is not None else "finished" if self.history.is_over else "interrupted"

    @property
    def stamp(self) -> str:
        """Changes when there is something new to show."""
        return f"{self.state} {self.version}"

    @cached_property
    def counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for row in self.rows:
            counts[row.status] = counts.get(row.status, 0) + 1
        return counts

    @property
    def wanted(self) -> int:
        """How many trials there will be, if known."""
        return trials_wanted(self.identity, len(self.rows), self.history.is_over) or len(self.rows)

    @cached_property
    def done(self) -> int:
        return sum(row.status in ENDED for row in self.rows)

    def eta_s(self, now: float | None = None) -> float | None:
        """Estimated from the pace since the current driver started."""
        since = None if self.driver is None else self.driver.since
        if since is None or self.done >= self.wanted:
            return None
        ended = sum(row.status in ENDED and row.changed >= since for row in self.rows)
        passed = (time.time() if now is None else now) - since
        return (self.wanted - self.done) * passed / ended if ended and passed > 0 else None

    @property
    def tone(self) -> str:
        return {"running": "good", "interrupted": "bad"}.get(self.state, "over")

    @property
    def title(self) -> str:
        titles = {"running": "Running", "interrupted": "Interrupted: no driver is running"}
        return titles.get(self.state, "Finished")

    @property
    def text(self) -> str:
        """A summary for a newcomer, in one or two sentences."""
        failed, count = self.counts.get("ERROR", 0), len(self.rows)
        told = f"{failed:,} of {count:,} trials failed." if failed else "No trial failed."
        return f"Rerun the same command to resume. {told}" if self.state == "interrupted" else told

    @property
    def best_params(self) -> list[tuple[str, str]]:
        best = self.best
        return [] if best is None else [(name, wording.value(value)) for name, value in best.params.items()]

    @cached_property
    def stopped_early(self) -> int:
        return len(self.history.stops)

    @cached_property
    def errors(self) -> list[tuple[str, list[SearchRow]]]:
        """The failed trials, grouped by their error, the most frequent first."""
        found: dict[str, list[SearchRow]] = {}
        for row in self.rows:
            if row.status == "ERROR":
                found.setdefault(row.error or "unknown error", []).append(row)
        return sorted(found.items(), key=lambda item: -len(item[1]))

    @cached_property
    def best(self) -> SearchRow | None:
        """The trial with the best of all results."""
        if not self.history.improvements:
            return None
        best = self.history.improvements[-1].trial
        return next((row for row in self.rows if row.id == best), None)


class SearchIndex:
    """Thread-safe: one thread reads, the others wait for it."""

    def __init__(self, stored: StoredExperiment) -> None:
        """``stored`` may serve one look only, so it is opened again here for many looks."""
        self.stored = StoredExperiment(stored.location, stored.patience_s)
        self._lock = threading.Lock()
        self._size = -1
        self._history: SearchHistory | None = None
        self._snapshot: SearchSnapshot | None = None

    @property
    def is_quick(self) -> bool:
        """Whether a look is too short to be noticed."""
        return self.stored.journal_size() in range(_QUICK_BYTES) or self.stored.journal_size() == self._size

    @property
    def last(self) -> SearchSnapshot | None:
        return self._snapshot

    def look(self) -> SearchSnapshot:
        with self._lock:
            driver = self.stored.driver()
            size = self.stored.journal_size()
            known = self._snapshot
            if known is None or self._history is None or size != self._size:
                identity, (records, damage) = self.stored.known_identity(), self.stored.journal()
                try:
                    self._history = self._history or SearchHistory(identity)
                    self._history.take(records)
                except ValueError:
                    self._history = SearchHistory(identity)
                    self._history.take(records)
                self._size = size
                rows = tuple(_row(trial, self._history, driver) for trial in self._history.trials())
                known = SearchSnapshot(str(len(records)), identity, self._history, rows, driver, tuple(damage))
            elif (driver is None) != (known.driver is None):
                rows = tuple(_row(trial, self._history, driver) for trial in self._history.trials())
                known = replace(known, version=f"{known.version}.", rows=rows, driver=driver)
            self._snapshot = known
            return known


@lru_cache(maxsize=1024)
def _param_name(name: str) -> str:
    return wording.line(name)


def _params(trial: Any) -> dict[str, Any]:
    """The searched parameters with the trial's current values, which change when it copies another trial."""
    params = {str(name): value for name, value in flat_items(dict(trial.params or {}))}
    config = dict(flat_items(dict(trial.config or {}))) if params else {}
    return {_param_name(name): config.get(name, value) for name, value in params.items()}


def _row(trial: Any, history: SearchHistory, driver: LivingDriver | None) -> SearchRow:
    """Without a driver no trial runs, whatever the last driver wrote."""
    status = "PENDING" if driver is None and trial.status == "RUNNING" else trial.status
    began = history.began.get(trial.id)
    last = metric_number(trial.metrics, history.metric) if history.metric else None
    return SearchRow(
        trial.id,
        trial.name,
        trial.directory,
        status,
        trial.iteration,
        history.best_values.get(trial.id, last),
        last,
        _params(trial),
        max(0.0, trial.changed - began) if began else 0.0,
        trial.changed,
        headline(trial.error),
        headline(trial.reason or history.stops.get(trial.id, (0, ""))[1]),
    )
