"""Reports that ranks logged, as the core, the kernel and manifests know them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from holdfast.core.run import commands as do
from holdfast.core.run.salvage import RankLog
from holdfast.store import values
from holdfast.store.manifests import FORMAT, Manifest
from holdfast.store.metrics import parse_line
from holdfast.store.report_log import RankReports, StagedReport
from holdfast.wire.worker_messages import Report


def log_of(reports: RankReports, lost: Collection[int] = ()) -> RankLog:
    """As the core knows it."""
    staged = {index: report.name for index, report in reports.staged.items()}
    return RankLog(reports.count, staged, reports.returned, frozenset(lost))


def as_said(reports: RankReports) -> list[Report]:
    """The messages of the rank's worker."""
    return [_said(reports.lines[index], index, reports.staged.get(index)) for index in sorted(reports.lines)]


def _said(line: bytes, index: int, staged: StagedReport | None) -> Report:
    if staged is None:
        return Report(index, line)
    arguments = b"" if staged.validation is None else values.encode(staged.validation)
    elsewhere = [(entry.path, entry.size, entry.digest, entry.at) for entry in staged.files if entry.at]
    return Report(index, line, True, staged.name, arguments, elsewhere=elsewhere)


def manifest_of(command: do.Commit, ranks: Sequence[RankReports], created: float) -> Manifest:
    """The manifest, without files, of a checkpoint that was reported before the driver heard of it."""
    where = (command.id, command.attempt_number, command.index, command.report, command.world_size)
    asked = (ranks[rank].staged[command.index].validation for rank in command.ranks)
    validation = next((arguments for arguments in asked if arguments is not None), None)
    metrics = metrics_of(ranks[0], command.index)
    return Manifest(FORMAT, *where, created=created, metrics=metrics, files=[], validation=validation)


def metrics_of(reports: RankReports, index: int) -> dict[str, Any]:
    parsed = parse_line(reports.lines[index]) if index in reports.lines else None
    return parsed["metrics"] if parsed else {}
