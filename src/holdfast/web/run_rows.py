"""The list of all runs and experiments: one row each, whatever is wrong with it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.errors import HoldfastError
from holdfast.runs.attempt_history import AttemptHistory, attempt_history
from holdfast.runs.discovery import READ_PATIENCE_S
from holdfast.runs.reading import Reading
from holdfast.runs.run_progress import progress_of
from holdfast.runs.stored_experiment import StoredExperiment, open_stored
from holdfast.store.interfaces import LivingDriver
from holdfast.store.location import Location
from holdfast.ui.display_picture import headline, value_text
from holdfast.web import wording
from holdfast.web.run_health import trouble_of
from holdfast.web.search_index import SearchSnapshot
from holdfast.web.searches import Searches

# What reading may raise if a file has intact records that no version of Holdfast writes.
NONSENSE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, msgspec.MsgspecError)
READING = "reading"  # the state of a row that is not known yet
_STATES = ("running", "failed", "interrupted", "stopped", "finished")
QUICKLY_READ = 300_000  # bytes of reports, to find the lost time; of longer files only both ends are read


@dataclass
class RunRow:
    address: str
    name: str
    path: str
    kind: str = "run"
    state: str = "unreadable"
    reports: int | None = None
    progress: float | None = None  # from 0 to 1
    progress_text: str = ""
    eta_s: float | None = None
    metrics: list[tuple[str, str]] = field(default_factory=list)
    metric_key: str = ""  # rows are sorted by this: the name and value of the first metric
    failures: int = 0
    goodput: float | None = None
    driver: str = ""
    changed: float | None = None
    trouble: list[str] = field(default_factory=list)

    @property
    def sort_keys(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "state": self.state,
            "progress": -1 if self.progress is None else self.progress,
            "metrics": self.metric_key,
            "driver": self.driver,
            "failures": self.failures,
            "goodput": -1 if self.goodput is None else self.goodput,
            "changed": self.changed or 0,
        }


def run_row(address: str, location: Location, searches: Searches) -> RunRow:
    row = RunRow(address, location.name, str(location))
    try:
        stored = open_stored(location, READ_PATIENCE_S, once=True)
        if isinstance(stored, StoredExperiment):
            _fill_search(row, searches.glance(stored))
        else:
            _fill(row, stored.read(with_manifests=False), stored.known_identity())
        if stored.run_file_damage():
            row.trouble.append("run.json is damaged")
    except (HoldfastError, OSError) as error:
        row.trouble.append(headline(str(error)))
    except NONSENSE as error:  # whatever is wrong with this run, still list the others
        row.trouble.append(f"Cannot be read ({type(error).__name__}: {headline(str(error))})")
    return row


def count_states(rows: Sequence[RunRow]) -> list[tuple[str, int]]:
    """How many runs are in each state, and in trouble; what needs a person comes first."""
    counts = Counter(row.state for row in rows)
    known = [("trouble", sum(bool(row.trouble) for row in rows))]
    order = [state for state in _STATES if state in counts]
    known += [(state, counts[state]) for state in [*order, *sorted(set(counts) - set(order))]]
    return [pair for pair in known if pair[1]]


def driver_text(driver: LivingDriver | None) -> str:
    if driver is None:
        return ""
    return f"process {driver.pid or '?'}{f' on {driver.host}' if driver.host else ''}"


def _fill(row: RunRow, found: Reading, identity: Mapping[str, Any]) -> None:
    row.state, row.driver, row.changed = found.state, driver_text(found.driver), found.last_change
    row.reports, last = found.last_report
    history = attempt_history(found.records, None if found.driver is None else time.time())
    row.failures = len(history.failures)
    row.metrics = wording.metrics(last and last["metrics"])
    row.metric_key = wording.first_metric(last and last["metrics"])
    row.progress, row.progress_text = progress_of(
        identity.get("train_loop_config"), last and last["metrics"], row.reports
    )
    row.eta_s = eta_s(found, history, row.progress)
    ledger = found.quick_ledger(QUICKLY_READ)
    row.goodput = ledger.goodput if ledger.wall_clock_s else None
    row.trouble = trouble_of(found, history)


def _fill_search(row: RunRow, found: SearchSnapshot | None) -> None:
    row.kind = "experiment"
    if found is None:
        row.state, row.progress_text = READING, "reading the journal"
        return
    failed, best = found.counts.get("ERROR", 0), found.best
    row.state, row.driver, row.changed = found.state, driver_text(found.driver), found.history.changed
    row.reports = found.history.results
    row.progress = min(1.0, found.done / found.wanted) if found.wanted else None
    row.progress_text = f"{found.done:,} of {found.wanted:,} trials"
    row.eta_s = found.eta_s()
    row.failures = failed
    if best is not None:
        row.metrics = [(f"best {wording.line(found.history.metric)}", value_text(best.value))]
        row.metric_key = f"{wording.line(found.history.metric)}\t{best.value}"
    if failed:
        row.trouble.append(f"{failed:,} trial{'s' if failed > 1 else ''} failed")


def eta_s(found: Reading, history: AttemptHistory, progress: float | None) -> float | None:
    """Estimated from the pace of the current attempt."""
    attempt = history.attempts[-1] if history.attempts else None
    reports, last = found.last_report
    if found.driver is None or not progress or progress >= 1 or attempt is None or last is None:
        return None
    made, took = reports - attempt.base, last["time"] - attempt.began
    if made <= 0 or took <= 0:
        return None
    whole = reports / progress
    return float(max(0.0, (whole - reports) * took / made))
