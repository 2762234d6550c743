"""A stored run at one moment. The reports, which may be millions, are read on demand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from holdfast.core.failures import describe
from holdfast.core.run.retention import ranked
from holdfast.core.run.state import Outcome, ValidationStatus
from holdfast.errors import TrainingFailedError, WorkerGroupError
from holdfast.store import typed_values
from holdfast.store.interfaces import LivingDriver
from holdfast.store.journal import Record
from holdfast.store.location import Location
from holdfast.store.manifests import Manifest
from holdfast.store.metrics import parse_line
from holdfast.store.parallel import AT_ONCE, in_parallel
from holdfast.store.times import is_time

from .experiments import OVER
from .ledger import Ledger, account
from .past import Past
from .report_edges import edge_reports

if TYPE_CHECKING:
    from .stored_run import StoredRun

_QUICKLY_READ = 8 << 20  # bytes of reports
TYPED_CONFIG = "typed_train_loop_config"  # in run.json beside the plain one, if that loses the types of values


def train_loop_config(
    identity: Mapping[str, Any], unknown: Callable[[dict[str, Any]], Any] | None = None
) -> dict[str, Any] | None:
    """The train function's config as a run stored it; ``unknown`` as in ``typed_values.from_json``."""
    if TYPED_CONFIG not in identity:
        return identity.get("train_loop_config")
    config: dict[str, Any] = typed_values.from_json(identity[TYPED_CONFIG], unknown)
    return config


class Reading:
    def __init__(
        self,
        run: StoredRun,
        driver: LivingDriver | None,
        manifests: list[Manifest],
        records: list[Record],
        past: Past,
    ) -> None:
        self.run, self.driver, self.manifests, self.records, self.past = run, driver, manifests, records, past

    @property
    def state(self) -> str:
        if self.driver is not None:
            return "running"
        if self.records and self.records[-1].kind == OVER:
            return "finished"
        return "interrupted" if self.past.ended is None else self.past.ended.outcome.value

    @property
    def config(self) -> dict[str, Any] | None:
        return train_loop_config(self.run.identity(), typed_values.shown)

    @property
    def error(self) -> TrainingFailedError | None:
        """Why the run failed; None if it did not."""
        ended = self.past.ended
        if ended is None or ended.outcome is not Outcome.FAILED:
            return None
        failures: dict[int, Exception] = {}
        if self.past.failures:
            _, last = self.past.failures[-1]
            failures[last.rank] = RuntimeError(describe(last.rank, last.evidence))
        return WorkerGroupError(ended.reason, failures)

    # Checkpoints

    @property
    def checkpoints(self) -> list[tuple[str, Location, dict[str, Any]]]:
        """Each kept one's id, place and metrics: the best last if they have a score, else the newest."""
        place = self.run.location / "checkpoints"
        return [(m.id, place / m.id, self.metrics_with(m)) for m in by_worth(self.manifests, self.past)]

    @property
    def newest(self) -> Location | None:
        return self.run.location / "checkpoints" / self.manifests[-1].id if self.manifests else None

    def metrics_with(self, manifest: Manifest) -> dict[str, Any]:
        return metrics_with(manifest, self.past)

    def validation(self, manifest: Manifest) -> ValidationStatus:
        for record in self.past.state.checkpoints:
            if record.id == manifest.id:
                return record.validation
        return ValidationStatus.NONE if manifest.validation is None else ValidationStatus.PENDING

    # Reports

    @cached_property
    def last_report(self) -> tuple[int, dict[str, Any] | None]:
        """The number of reports in the surviving history, and rank 0's last."""
        attempts = self.past.attempts
        limit = math.inf  # reports of an attempt beyond the next one's start were discarded
        for attempt in reversed(attempts):
            for line in self.run.reports_backwards(attempt.attempt_number):
                row = parse_line(line)
                if row is not None and attempt.base + row["index"] < limit:
                    return max(attempt.base + row["index"] + 1, attempts[-1].base), row
            limit = min(limit, attempt.base)
        return attempts[-1].base if attempts else 0, None

    @property
    def last_change(self) -> float | None:
        _, row = self.last_report
        times = [self.records[-1].time] if self.records else []
        return max(filter(is_time, [*times, row["time"]] if row else times), default=None)

    @property
    def metrics(self) -> dict[str, Any] | None:
        """The metrics of the last report, with the results of its checkpoint's validation."""
        number, row = self.last_report
        newest = self.manifests[-1] if self.manifests else None
        if row is None or newest is None or newest.report != number:
            return row and row["metrics"]
        return {**row["metrics"], **(self.past.validated.get(newest.id) or {})}

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The metrics of every report in the surviving history: each attempt's are cut where the next one started, so
        that no report appears twice."""
        rows: list[dict[str, Any]] = []
        for attempt in self.past.attempts:
            del rows[attempt.base :]
            rows.extend(report["metrics"] for report in self.reports[attempt.attempt_number])
        return rows

    @cached_property
    def reports(self) -> dict[int, list[dict[str, Any]]]:
        """Rank 0's, by attempt."""
        return {attempt.attempt_number: self.run.reports(attempt.attempt_number) for attempt in self.past.attempts}

    @cached_property
    def ledger(self) -> Ledger:
        return self._account(self.reports)

    def quick_ledger(self, most: int = _QUICKLY_READ) -> Ledger:
        """From ``most`` bytes of reports and the edges of longer attempts: the same unless a clock was set back."""
        wanted, left = [], most
        for attempt, kept in zip(self.past.attempts, self._kept(), strict=True):
            size = self.run.reports_size(attempt.attempt_number)
            wanted.append((attempt.attempt_number, kept, size <= left))
            left -= size if size <= left else 0
        rows = in_parallel(lambda one: self._rows_quickly(*one), wanted, self.run.location.at_once(AT_ONCE))
        return self._account({number: found for (number, _, _), found in zip(wanted, rows, strict=True)})

    def _rows_quickly(self, attempt_number: int, kept: float, whole: bool) -> list[dict[str, Any]]:
        if not whole:
            return edge_reports(self.run, attempt_number, kept)
        lines = list(self.run.reports_backwards(attempt_number))
        return [row for row in map(parse_line, reversed(lines)) if row is not None]

    def _kept(self) -> list[float]:
        """How many reports of each attempt are in the surviving history."""
        limits, limit = [], math.inf
        for attempt in reversed(self.past.attempts):
            limits.append(limit - attempt.base)
            limit = min(limit, attempt.base)
        return limits[::-1]

    def _account(self, reports: dict[int, list[dict[str, Any]]]) -> Ledger:
        return account(
            self.records, {attempt: [(row["index"], row["time"]) for row in rows] for attempt, rows in reports.items()}
        )


def by_worth(manifests: Iterable[Manifest], past: Past) -> list[Manifest]:
    """The best last if checkpoints have a score, else the newest."""
    worth = {c.id: at for at, c in enumerate(ranked(past.state.checkpoints, past.state.spec))}
    return sorted(manifests, key=lambda m: (worth.get(m.id, len(worth)), m.report))


def metrics_with(manifest: Manifest, past: Past) -> dict[str, Any]:
    """That were reported with a checkpoint, or found by its validation."""
    return {**(manifest.metrics or {}), **(past.validated.get(manifest.id) or {})}
