"""What a run left behind, read from its files alone: no lease is taken, and nothing is changed."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

from holdfast.core.failures import describe
from holdfast.core.state import Outcome
from holdfast.errors import StorageError, TrainingFailedError, WorkerGroupError
from holdfast.store import journal, runfile
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout
from holdfast.store.metrics import read_last_metrics, read_metrics

from .ledger import Ledger, account
from .recovery import Past, read_past

Reports = dict[int, list[dict[str, Any]]]  # rank 0's, by generation
_QUICKLY_READ = 16 << 20  # bytes


class History:
    """The reports, of which there may be millions, are read when they are asked for."""

    def __init__(self, layout: RunLayout, identity: dict[str, Any]) -> None:
        self._layout = layout
        self._records, _ = journal.read(layout)
        self._past = read_past(self._records)
        manifests, _ = CheckpointStore(layout).scan()
        found = self._past.validated
        self.checkpoints: list[tuple[str, Path, dict[str, Any]]] = [
            (m.id, layout.checkpoint_dir(m.id), {**(m.metrics or {}), **(found.get(m.id) or {})}) for m in manifests
        ]
        self.config: dict[str, Any] | None = identity.get("train_loop_config")
        self.error = _error(self._past)

    @cached_property
    def metrics(self) -> dict[str, Any] | None:
        """The last report."""
        last = read_last_metrics(self._layout, self._past.groups[-1].generation, 0) if self._past.groups else None
        if last is not None:
            metrics: dict[str, Any] = last["metrics"]
            return metrics
        return self.rows[-1] if self.rows else None

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The metrics of every report in the surviving history."""
        return _surviving_rows(self._past, self._reports)

    @cached_property
    def ledger(self) -> Ledger:
        return _account(self._records, self._reports)

    @cached_property
    def _reports(self) -> Reports:
        return {g.generation: read_metrics(self._layout, g.generation, 0)[0] for g in self._past.groups}


def load(root: Path) -> History:
    return History(RunLayout(root), read_identity(root))


def closing_account(records: list[Record], layout: RunLayout) -> str:
    """A line for the end of a run. None where it would take long: the end of a run must not wait or fail for it."""
    try:
        groups = read_past(records).groups
        files = [layout.metrics_file(g.generation, 0) for g in groups]
        size = sum(os.path.getsize(file) for file in files if file.exists())
        if size > _QUICKLY_READ:
            return ""
        reports = {g.generation: read_metrics(layout, g.generation, 0)[0] for g in groups}
        return _account(records, reports).summary()
    except OSError:
        return ""


def _account(records: list[Record], reports: Reports) -> Ledger:
    stamps = {
        generation: [(row["index"], row["time"]) for row in rows if isinstance(row["time"], (int, float))]
        for generation, rows in reports.items()
    }
    return account(records, stamps)


def read_identity(root: Path) -> dict[str, Any]:
    """What run.json says; if that is damaged, the copy in the journal."""
    layout = RunLayout(root)
    try:
        return runfile.read(layout)
    except StorageError as error:
        records, _ = journal.read(layout)
        identity = read_past(records).identity
        if identity is None:
            raise error
        return identity


def _surviving_rows(past: Past, reports: Reports) -> list[dict[str, Any]]:
    """Rank 0's reports, each group's cut where the next one started from, so that no report is there twice."""
    rows: list[dict[str, Any]] = []
    for group in past.groups:
        del rows[group.base :]
        rows.extend(report["metrics"] for report in reports[group.generation])
    return rows


def _error(past: Past) -> TrainingFailedError | None:
    if past.ended is None or past.ended.outcome is not Outcome.FAILED:
        return None
    failures: dict[int, Exception] = {}
    if past.failures:
        _, last = past.failures[-1]
        failures[last.rank] = RuntimeError(describe(last.rank, last.evidence))
    return WorkerGroupError(past.ended.reason, failures)
