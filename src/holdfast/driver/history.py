"""What a run left behind, read from its files alone: no lease is taken, and nothing is changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.core.failures import describe
from holdfast.core.state import Outcome
from holdfast.errors import StorageError, TrainingFailedError, WorkerGroupError
from holdfast.store import journal, runfile
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout
from holdfast.store.metrics import read_metrics

from .ledger import Ledger, account
from .recovery import Past, read_past

Reports = dict[int, list[dict[str, Any]]]  # rank 0's, by generation


@dataclass
class History:
    metrics: dict[str, Any] | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: list[tuple[str, Path, dict[str, Any]]] = field(default_factory=list)
    config: dict[str, Any] | None = None
    error: TrainingFailedError | None = None
    ledger: Ledger = field(default_factory=Ledger)


def load(root: Path) -> History:
    layout = RunLayout(root)
    identity = read_identity(root)
    records, _ = journal.read(layout)
    past = read_past(records)
    manifests, _ = CheckpointStore(layout).scan()
    reports = _read_reports(layout, past)
    rows = _surviving_rows(past, reports)
    return History(
        metrics=rows[-1] if rows else None,
        rows=rows,
        checkpoints=[
            (m.id, layout.checkpoint_dir(m.id), {**(m.metrics or {}), **(past.validated.get(m.id) or {})})
            for m in manifests
        ],
        config=identity.get("train_loop_config"),
        error=_error(past),
        ledger=_account(records, reports),
    )


def read_ledger(layout: RunLayout) -> Ledger:
    """Empty if the files cannot be read: the end of a run must not fail for it."""
    try:
        records, _ = journal.read(layout)
        return _account(records, _read_reports(layout, read_past(records)))
    except OSError:
        return Ledger()


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


def _read_reports(layout: RunLayout, past: Past) -> Reports:
    return {group.generation: read_metrics(layout, group.generation, 0)[0] for group in past.groups}


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
