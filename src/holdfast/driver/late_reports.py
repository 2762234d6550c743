"""Reports of the last attempt that the dead driver did not receive, for runs on a disk. Every rank logged its reports
beside its staged files. Checkpoints that all ranks had staged are committed here, as if the driver had received them in
time, with the metrics of all reports up to them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.core.run import commands as do
from holdfast.core.run.salvage import committable
from holdfast.core.run.state import Durable
from holdfast.errors import StorageError
from holdfast.runs.past import Past
from holdfast.store import report_log, staging
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.layout import RunLayout
from holdfast.store.manifests import Manifest, Shard, choose
from holdfast.store.metrics import MetricsWriter, read_last_metrics, read_metrics
from holdfast.store.report_log import RankReports

from .logged_reports import log_of, manifest_of

log = logging.getLogger(__name__)
_WRITERS_END_WITHIN_S = 5.0
_NOT_USED = "%s, which the last driver had not committed, cannot be used: %s"


class LateReport(NamedTuple):
    """A report that was saved with a checkpoint, to be delivered to callbacks."""

    number: int
    metrics: list[dict[str, Any]]  # by rank
    checkpoint: str | None


def take_up(past: Past, state: Durable, store: CheckpointStore, layout: RunLayout) -> list[Manifest]:
    """Commit the checkpoints that all ranks of the last attempt had staged. ``state``: the past state, with the content
    of storage."""
    attempt = past.last_attempt
    if attempt is None:
        return []
    paths = [layout.report_log(attempt.attempt_number, rank) for rank in range(attempt.world_size)]
    if not any(path.exists() for path in paths):
        return []
    report_log.await_writers(paths, _WRITERS_END_WITHIN_S)
    elsewhere = bool(attempt.leased)  # on the machines of a cluster
    ranks = [report_log.parse(report_log.read(path, any_boot=elsewhere)) for path in paths]
    taken: list[Manifest] = []
    for command in committable(state, [log_of(reports) for reports in ranks], past.given_up, store.ids()):
        for rank in command.ranks:
            files = ranks[rank].staged[command.index].files
            store.take_back(command.attempt_number, command.index, rank, files)
        shards = _shards(command, ranks, store, layout)
        if shards is not None:
            append_missing(layout, command.attempt_number, ranks, command.index)
            taken.append(store.commit(manifest_of(command, ranks, time.time()), shards))
    return taken


def _shards(
    command: do.Commit, ranks: Sequence[RankReports], store: CheckpointStore, layout: RunLayout
) -> list[Shard] | None:
    """The files of each rank with their digests. If they differ from the report or do not fit together: None, and a
    warning. If they cannot be read or synced: an error, and they stay for the next driver."""
    shards: list[Shard] = []
    for rank in command.ranks:
        expected = ranks[rank].staged[command.index].files
        directory = layout.shard_dir(command.attempt_number, command.index, rank)
        problem = ranks[rank].damage(command.index, directory) if expected else "it staged no files"
        stored = (staging.difference(layout.root / entry.at, entry) for entry in expected if entry.at)
        problem = problem or next(filter(None, stored), None)
        if problem is not None:
            log.warning(_NOT_USED, command.id, f"rank {rank}: {problem}")
            return None
        sealed = expected if all(entry.at for entry in expected) else store.seal(directory)
        shards.append(Shard(rank, str(directory), sealed))
    try:
        choose(command.id, shards)
    except StorageError as error:
        log.warning(_NOT_USED, command.id, error)
        return None
    return shards


def append_missing(layout: RunLayout, attempt_number: int, ranks: Sequence[RankReports], last: int) -> None:
    """The metrics of every report up to that one, durable."""
    writer = MetricsWriter(layout)
    try:
        for rank, reports in enumerate(ranks):
            row = read_last_metrics(layout, attempt_number, rank)
            known = row["index"] if row is not None else -1
            lines = [reports.lines[index] for index in sorted(reports.lines) if known < index <= last]
            if lines:
                writer.append(attempt_number, rank, b"".join(lines))
    finally:
        writer.close()


def late_reports(layout: RunLayout, taken: Sequence[Manifest], newest: int) -> list[LateReport]:
    """The reports after number ``newest`` that these checkpoints have saved, by number."""
    found: list[LateReport] = []
    for manifest in sorted(taken, key=lambda manifest: manifest.report):
        base = manifest.report - manifest.index - 1
        ranks = [_metrics_by_number(layout, manifest.attempt_number, rank, base) for rank in range(manifest.world_size)]
        for number in range(newest + 1, manifest.report + 1):
            if number in ranks[0]:
                metrics = [by_number.get(number, {}) for by_number in ranks]
                found.append(LateReport(number, metrics, manifest.id if number == manifest.report else None))
        newest = manifest.report
    return found


def _metrics_by_number(layout: RunLayout, attempt_number: int, rank: int, base: int) -> dict[int, dict[str, Any]]:
    rows, _ = read_metrics(layout, attempt_number, rank)
    return {base + row["index"] + 1: row["metrics"] for row in rows}
