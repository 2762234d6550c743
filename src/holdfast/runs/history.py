"""What a run left behind, read from its files alone: no lease is taken, and nothing is changed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from holdfast.core.failures import describe
from holdfast.core.run.state import Outcome
from holdfast.errors import StorageError, StorageUnavailableError, TrainingFailedError, WorkerGroupError
from holdfast.runs.ledger import Ledger, account
from holdfast.runs.past import Past, read_past
from holdfast.store import journal, runfile
from holdfast.store.checkpoints import CheckpointStore, Manifest
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.store.metrics import parse_line, read_last_metrics, read_metrics
from holdfast.store.objects.base import ObjectStore
from holdfast.store.remote import journal as remote_journal
from holdfast.store.remote import runfile as remote_runfile
from holdfast.store.remote.checkpoints import RemoteCheckpoints
from holdfast.store.remote.fetch import get_all, in_parallel
from holdfast.store.remote.mirror import mirror
from holdfast.store.remote.parts import files_of

PATIENCE_S = 60.0
_QUICKLY_READ = 16 << 20  # bytes

Row = dict[str, Any]  # a report: its index, its time and its metrics
Reports = dict[int, list[Row]]  # rank 0's, by generation


class ReportReader(Protocol):
    """Reads what rank 0 reported in a generation."""

    def all(self, generation: int) -> list[Row]: ...

    def last(self, generation: int) -> Row | None: ...


@dataclass(frozen=True)
class LocalReports:
    layout: RunLayout

    def all(self, generation: int) -> list[Row]:
        return read_metrics(self.layout, generation, 0)[0]

    def last(self, generation: int) -> Row | None:
        return read_last_metrics(self.layout, generation, 0)


@dataclass(frozen=True)
class RemoteReports:
    location: Location
    patience_s: float

    def all(self, generation: int) -> list[Row]:
        objects = self.location.open(self.patience_s)
        content = get_all(objects, self._parts(objects, generation))
        rows = map(parse_line, b"".join(part or b"" for part in content).split(b"\n"))
        return [row for row in rows if row is not None]

    def last(self, generation: int) -> Row | None:
        """Most often the last part of the file has it."""
        objects = self.location.open(self.patience_s)
        (end,) = get_all(objects, self._parts(objects, generation)[-1:]) or [b""]
        rows = (parse_line(line) for line in reversed((end or b"").split(b"\n")) if line)
        found = next((row for row in rows if row is not None), None)
        return found or next(reversed(self.all(generation)), None)

    def _parts(self, objects: ObjectStore, generation: int) -> list[str]:
        layout = RunLayout(Path())
        key = layout.metrics_file(generation, 0).as_posix()
        keys = [info.key for info in objects.list(f"{key.rpartition('/')[0]}/")]
        return files_of(keys).get(key, [])


class History:
    """The reports, of which there may be millions, are read when they are asked for."""

    def __init__(
        self,
        location: Location,
        identity: dict[str, Any],
        records: list[Record],
        manifests: Sequence[Manifest],
        reader: ReportReader,
    ) -> None:
        self._records = records
        self._past = read_past(records)
        self._reader = reader
        found = self._past.validated
        self.checkpoints: list[tuple[str, Location, dict[str, Any]]] = [
            (m.id, location / "checkpoints" / m.id, {**(m.metrics or {}), **(found.get(m.id) or {})}) for m in manifests
        ]
        self.config: dict[str, Any] | None = identity.get("train_loop_config")
        self.error = _error(self._past)

    @cached_property
    def metrics(self) -> dict[str, Any] | None:
        """The last report."""
        last = self._reader.last(self._past.groups[-1].generation) if self._past.groups else None
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
        return {g.generation: self._reader.all(g.generation) for g in self._past.groups}


def load(run: Location | Path, patience_s: float = PATIENCE_S) -> History:
    """NotARunError if there is no run; StorageUnavailableError if that cannot be told."""
    location = Location.parse("load(run", run)
    identity = read_identity(location, patience_s)
    if location.path is not None:
        layout = RunLayout(location.path)
        records, _ = journal.read(layout)
        return History(location, identity, records, CheckpointStore(layout).scan()[0], LocalReports(layout))
    with tempfile.TemporaryDirectory(prefix="holdfast-history-") as directory:
        layout = mirror(location.open(patience_s), Path(directory, "run"), metrics=False, judge=counted)
        records, _ = journal.read(layout)
        manifests, _ = CheckpointStore(layout).scan()
    return History(location, identity, records, manifests, RemoteReports(location, patience_s))


def read_records(location: Location, patience_s: float = PATIENCE_S) -> list[Record]:
    """The journal as it is."""
    if location.path is not None:
        return journal.read(RunLayout(location.path))[0]
    return remote_journal.read(location.open(patience_s))[0]


def manifests_of(location: Location, patience_s: float = PATIENCE_S) -> list[Manifest]:
    """The checkpoints that are stored there, by report number, as far as their manifests are intact."""
    if location.path is not None:
        return CheckpointStore(RunLayout(location.path)).scan()[0]
    checkpoints = RemoteCheckpoints(location.open(patience_s))
    found = in_parallel(checkpoints.read_intact, checkpoints.listing().committed)
    return sorted(filter(None, found), key=lambda manifest: (manifest.report, manifest.id))


def read_identity(location: Location, patience_s: float = PATIENCE_S) -> dict[str, Any]:
    """What run.json says; if that is damaged, the copy in the journal."""
    if location.path is not None:
        layout = RunLayout(location.path)
        try:
            return runfile.read(layout)
        except StorageError as error:
            return _identity_in(journal.read(layout)[0], error)
    objects = location.open(patience_s)
    try:
        return remote_runfile.read(objects)
    except StorageUnavailableError:
        raise
    except StorageError as error:
        return _identity_in(remote_journal.read(objects)[0], error)


def counted(records: Sequence[Record]) -> Callable[[str, float], bool]:
    """Which manifests in remote storage are of checkpoints, by id and epoch: those that the journal knows, and those
    that its last driver could not journal any more."""
    past = read_past(records)
    known, retired = {checkpoint.id for checkpoint in past.state.checkpoints}, past.retired
    return lambda id, epoch: id in known or (epoch >= past.state.epoch and id not in retired)


def _identity_in(records: Sequence[Record], error: StorageError) -> dict[str, Any]:
    identity = read_past(records).identity
    if identity is None:
        raise error
    return identity


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
