"""What the last attempt reported and the driver that died did not hear; taken up here where the run is on a disk.

Every rank logged its reports beside what it staged. What all of them had staged is committed here, as if it had been
heard in time, with the metrics of all reports up to it.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from holdfast.core import commands as do
from holdfast.core import events as ev
from holdfast.core import run as core
from holdfast.core.salvage import RankLog, committable
from holdfast.core.state import RunState
from holdfast.errors import StorageError
from holdfast.store import report_log, values
from holdfast.store.checkpoints import FORMAT, CheckpointStore, Manifest, Shard, choose
from holdfast.store.layout import RunLayout
from holdfast.store.metrics import MetricsWriter, parse_line, read_last_metrics
from holdfast.store.report_log import RankReports, StagedReport
from holdfast.wire.worker_messages import Report

from .recovery import Past, committed

log = logging.getLogger(__name__)
_WRITERS_END_WITHIN_S = 5.0


class LateReport(NamedTuple):
    """A report that is safe with a checkpoint, for those who are told of reports."""

    number: int
    metrics: list[dict[str, Any]]  # by rank
    checkpoint: str | None


def take_up(
    past: Past, found: Sequence[ev.Event], store: CheckpointStore, layout: RunLayout, score_attribute: str | None
) -> tuple[list[ev.Committed], list[LateReport]]:
    """Commit what the last attempt's ranks had all staged. ``found``: what is known beyond the journal."""
    group = past.last_group
    if group is None:
        return [], []
    paths = [layout.report_log(group.generation, rank) for rank in range(group.world_size)]
    if not any(path.exists() for path in paths):
        return [], []
    report_log.await_writers(paths, _WRITERS_END_WITHIN_S)
    ranks = [report_log.parse(report_log.read(path)) for path in paths]
    state = functools.reduce(core.replay, found, past.state)
    newest = state.newest.report if state.newest is not None else 0
    taken: list[Manifest] = []
    for command in committable(state, [log_of(reports) for reports in ranks], past.given_up, store.ids()):
        for rank in command.ranks:
            files = ranks[rank].staged[command.index].files
            store.take_back(command.generation, command.index, rank, files)
        shards = _shards(command, ranks, store, layout)
        if shards is not None:
            append_missing(layout, command.generation, ranks, command.index)
            taken.append(store.commit(manifest_of(command, ranks), shards))
    late = late_reports(state, ranks, newest, taken)
    return [committed(manifest, score_attribute, index=-1) for manifest in taken], late


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


def _shards(
    command: do.Commit, ranks: Sequence[RankReports], store: CheckpointStore, layout: RunLayout
) -> list[Shard] | None:
    """Each rank's files, hashed; None, with a warning, if they are not what was reported or do not go together."""
    shards: list[Shard] = []
    try:
        for rank in command.ranks:
            expected = ranks[rank].staged[command.index].files
            directory = layout.shard_dir(command.generation, command.index, rank)
            problem = ranks[rank].damage(command.index, directory)
            if problem is not None:
                raise StorageError(f"rank {rank}: {problem}")
            sealed = expected if all(entry.at for entry in expected) else store.seal(directory)
            shards.append(Shard(rank, str(directory), sealed))
        choose(command.id, shards)
    except StorageError as error:
        log.warning("%s, which the last driver had not committed, is not used: %s", command.id, error)
        return None
    return shards


def manifest_of(command: do.Commit, ranks: Sequence[RankReports]) -> Manifest:
    """Of a checkpoint that was reported and not heard of, without its files."""
    where = (command.id, command.generation, command.index, command.report, command.world_size)
    asked = (ranks[rank].staged[command.index].validation for rank in command.ranks)
    validation = next((arguments for arguments in asked if arguments is not None), None)
    metrics = metrics_of(ranks[0], command.index)
    return Manifest(FORMAT, *where, created=time.time(), metrics=metrics, files=[], validation=validation)


def metrics_of(reports: RankReports, index: int) -> dict[str, Any]:
    parsed = parse_line(reports.lines[index]) if index in reports.lines else None
    return parsed["metrics"] if parsed else {}


def append_missing(layout: RunLayout, generation: int, ranks: Sequence[RankReports], last: int) -> None:
    """The metrics of every report up to that one, durable."""
    writer = MetricsWriter(layout)
    try:
        for rank, reports in enumerate(ranks):
            row = read_last_metrics(layout, generation, rank)
            known = row["index"] if row is not None else -1
            lines = [reports.lines[index] for index in sorted(reports.lines) if known < index <= last]
            if lines:
                writer.append(generation, rank, b"".join(lines))
    finally:
        writer.close()


def late_reports(
    state: RunState, ranks: Sequence[RankReports], newest: int, taken: Sequence[Manifest]
) -> list[LateReport]:
    """The reports behind number ``newest`` that are safe now."""
    ids = {manifest.report: manifest.id for manifest in taken}
    numbers = range(newest + 1, max(ids, default=newest) + 1)
    return [
        LateReport(number, [metrics_of(reports, number - state.base - 1) for reports in ranks], ids.get(number))
        for number in numbers
        if number - state.base - 1 in ranks[0].lines
    ]
