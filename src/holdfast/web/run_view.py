"""What the page of a run shows, read at one look. Nothing here reads all reports: curves come from ``curve_index``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from holdfast.core.metric_names import flat_items
from holdfast.core.run.events import AttemptStarted
from holdfast.runs import ledger as ledgers
from holdfast.runs import timeline
from holdfast.runs.attempt_history import AttemptHistory, FailureAccount, attempt_history
from holdfast.runs.ledger import Ledger
from holdfast.runs.past import IDENTITY
from holdfast.runs.reading import Reading
from holdfast.runs.run_progress import progress_of
from holdfast.runs.stored_run import StoredRun
from holdfast.store.journal import Record
from holdfast.store.sealed import Damage
from holdfast.web import wording
from holdfast.web.curve_index import AttemptCurves, CurveIndex
from holdfast.web.run_rows import driver_text, eta_s, trouble_of

_LAST_LINES = 20
_FAILURES_WITH_LINES = 10  # the last ones: each is a look into a log
_SHOWN_MOMENTS = 500
_SHOWN_CHECKPOINTS = 200
_FIRST_SLICE_S = 0.12


@dataclass
class PageFailure:
    account: FailureAccount
    recovered_s: float | None
    last_lines: list[str] = field(default_factory=list)
    has_log: bool = False


@dataclass
class PageCheckpoint:
    id: str
    report: int
    saved: float
    size: int
    files: int
    attempt: int
    validation: str
    metrics: list[tuple[str, str]]
    resumed: bool


@dataclass
class SettingsChange:
    time: float
    changes: list[tuple[str, str, str]]  # name, before, after


@dataclass
class RunView:
    name: str
    path: str
    state: str
    driver: str
    has_driver: bool
    reports: int
    metrics: list[tuple[str, str]]
    progress: float | None
    progress_text: str
    eta_s: float | None
    changed: float | None
    trouble: list[str]
    history: AttemptHistory
    moments: list[timeline.Moment]
    ledger: Ledger | None  # None until the reports have been looked into
    failures: list[PageFailure]
    checkpoints: list[PageCheckpoint]
    quarantined: list[tuple[str, str]]
    settings: list[tuple[str, list[tuple[str, str]]]]
    settings_changes: list[SettingsChange]
    damage: list[Damage]
    logs: list[tuple[int, list[int]]]  # attempts with their ranks
    hangs: list[int]  # attempts whose stacks were taken
    version: str


def version_of(found: Reading) -> str:
    """Differs when there is something new to show."""
    return f"{found.state} {len(found.records)} {found.last_report[0]}"


def run_view(stored: StoredRun, index: CurveIndex, found: Reading | None = None) -> RunView:
    found = stored.read() if found is None else found
    is_large = index.is_large(found.past.attempts)
    if not is_large:
        index.advance(found.past.attempts, _FIRST_SLICE_S)
    history = attempt_history(found.records, None if found.driver is None else time.time())
    ledger = None if is_large else known_ledger(found.records, found.past.attempts, index.attempts())
    identity = stored.known_identity()
    reports, last = found.last_report
    progress, progress_text = progress_of(identity.get("train_loop_config"), last and last["metrics"], reports)
    logs = [(attempt, stored.ranks(attempt)) for attempt in stored.attempts()[-50:]]
    moments = timeline.moments(found.records)
    return RunView(
        stored.location.name,
        str(stored.location),
        found.state,
        driver_text(found.driver),
        found.driver is not None,
        reports,
        wording.metrics(found.metrics, 8),
        progress,
        progress_text,
        eta_s(found, history, progress),
        found.last_change,
        trouble_of(found, history),
        history,
        moments[-_SHOWN_MOMENTS:],
        ledger,
        _failures(stored, history, ledger or Ledger(), dict(logs)),
        _checkpoints(found, history.resumed),
        stored.quarantined(),
        _settings(identity),
        _changes(found.records),
        [*stored.run_file_damage(), *stored.journal_damage(), *stored.manifest_damage()],
        logs,
        sorted({record.body.get("generation", 0) for record in found.records if record.kind == "StacksTaken"}),
        version_of(found),
    )


def known_ledger(
    records: Sequence[Record], starts: Sequence[AttemptStarted], attempts: Mapping[int, AttemptCurves]
) -> Ledger:
    """From the reports that are known so far; those between two of a stretch change nothing."""
    return ledgers.account(
        records, {started.attempt_number: _times(attempts.get(started.attempt_number)) for started in starts}
    )


def _times(attempt: AttemptCurves | None) -> list[tuple[int, float]]:
    return [] if attempt is None else attempt.known_times


def _failures(
    stored: StoredRun, history: AttemptHistory, ledger: Ledger, logs: Mapping[int, list[int]]
) -> list[PageFailure]:
    recovered = [entry.recovered_s for entry in ledger.failures]
    shown = []
    for place, account in enumerate(history.failures):
        failure = PageFailure(
            replace(
                account,
                text=wording.lines(account.text),
                message=wording.lines(account.message),
                knock_on=tuple(wording.line(text) for text in account.knock_on[:20]),
            ),
            recovered[place] if place < len(recovered) else None,
        )
        failure.has_log = account.rank in logs.get(account.attempt, ())
        if failure.has_log and place >= len(history.failures) - _FAILURES_WITH_LINES:
            failure.last_lines = last_lines(stored, account.attempt, account.rank)
        shown.append(failure)
    return shown[::-1]


def last_lines(stored: StoredRun, attempt: int, rank: int, count: int = _LAST_LINES) -> list[str]:
    found = list(islice(stored.log_backwards(attempt, rank), count + 1))
    lines = [wording.line(text.decode(errors="replace")) for text in reversed(found)]
    while lines and not lines[-1]:
        lines.pop()
    return lines[-count:]


def _checkpoints(found: Reading, resumed: set[str]) -> list[PageCheckpoint]:
    return [
        PageCheckpoint(
            manifest.id,
            manifest.report,
            manifest.created,
            sum(entry.size for entry in manifest.files),
            len(manifest.files),
            manifest.attempt_number,
            found.validation(manifest).value.replace("_", " ").lower(),
            wording.metrics(found.metrics_with(manifest), 3),
            manifest.id in resumed,
        )
        for manifest in found.manifests[: -_SHOWN_CHECKPOINTS - 1 : -1]
    ]


def _settings(identity: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    titles = {
        "train_loop_config": "Train function",
        "scaling": "Workers",
        "failure": "Failures",
        "checkpoint": "Checkpoints",
    }
    known = [("trainer", identity.get("trainer")), ("experiment", identity.get("experiment"))]
    starts = [("Run", [(name, wording.value(value)) for name, value in known if value])]
    for key, title in titles.items():
        part = identity.get(key)
        if isinstance(part, Mapping) and part:
            starts.append((title, [(wording.line(name), wording.value(value)) for name, value in flat_items(part)]))
    return [started for started in starts if started[1]]


def _changes(records: Sequence[Record]) -> list[SettingsChange]:
    """How the configuration changed between drivers."""
    changes, before = [], None
    for record in records:
        if record.kind != IDENTITY:
            continue
        after = dict(flat_items({key: value for key, value in record.body.items() if key not in ("id", "created")}))
        if before is not None and before != after:
            names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
            changes.append(
                SettingsChange(
                    record.time,
                    [(wording.line(n), wording.value(before.get(n)), wording.value(after.get(n))) for n in names],
                )
            )
        before = after
    return changes


def curves_json(found: Reading, index: CurveIndex, within_s: float) -> dict[str, Any]:
    """All metrics as curves: what was kept, and what a restart took back, apart."""
    starts = found.past.attempts
    share = index.advance(starts, within_s)
    known = index.attempts()
    history = attempt_history(found.records)
    limits, limit = {}, float("inf")
    for started in reversed(starts):
        limits[started.attempt_number] = limit
        limit = min(limit, started.base)
    metrics: dict[str, dict[str, Any]] = {}
    for started in starts:
        attempt = known.get(started.attempt_number)
        for name, curve in (attempt.curves if attempt is not None else {}).items():
            metric = metrics.setdefault(name, {"name": wording.line(name), "kept": [], "undone": [], "odd": 0})
            metric["odd"] += curve.odd
            points = curve.points()
            kept = [point for point in points if point[0] <= limits[started.attempt_number]]
            if kept:
                metric["kept"].append(_series(started.attempt_number, kept))
            if len(kept) < len(points):
                metric["undone"].append(_series(started.attempt_number, points[max(0, len(kept) - 1) :]))
    return {
        "share": share,
        "metrics": list(metrics.values()),
        "failures": [
            {"x": f.at, "kind": f.kind, "text": wording.line(f.text)[:200], "number": f.number}
            for f in history.failures
            if f.at >= 0
        ],
    }


def _series(attempt: int, points: Sequence[tuple[float, float]]) -> dict[str, Any]:
    return {"attempt": attempt, "x": [x for x, _ in points], "y": [y for _, y in points]}
