"""The content of a run's page at one moment. Nothing here reads all reports; curves come from ``curve_index``."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from holdfast.core.metric_names import flat_items
from holdfast.core.run.state import ValidationStatus
from holdfast.runs import timeline
from holdfast.runs.attempt_history import AttemptHistory, FailureAccount, WrittenHistory, attempt_history
from holdfast.runs.ledger import Ledger
from holdfast.runs.past import IDENTITY
from holdfast.runs.pending_checkpoints import PendingCheckpoint, pending_checkpoints
from holdfast.runs.reading import Reading
from holdfast.runs.run_progress import progress_of
from holdfast.runs.stored_run import StoredRun
from holdfast.store.journal import Record
from holdfast.store.metrics import parse_line
from holdfast.store.parallel import in_parallel
from holdfast.store.sealed import Damage
from holdfast.web import wording
from holdfast.web.bucketed_curve import AttemptCurves
from holdfast.web.curve_index import CurveIndex
from holdfast.web.run_health import RunHealth, health_of, lost_s, trouble_of
from holdfast.web.run_rows import QUICKLY_READ, driver_text, eta_s

_LONG_JOURNAL = 500_000  # bytes
_LAST_LINES = 20
_FAILURES_WITH_LINES = 10  # the last ones, because each one costs a look into a log
_SHOWN_MOMENTS = 500
_SHOWN_CHECKPOINTS = 200


@dataclass
class PageFailure:
    account: FailureAccount
    recovered_s: float | None
    last_lines: list[str] = field(default_factory=list)


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
class SettingsGroup:
    title: str
    given: list[tuple[str, str]]
    unset: list[str]


@dataclass
class SettingsChange:
    time: float
    changes: list[tuple[str, str, str]]  # name, before, after


@dataclass(frozen=True)
class RunLogs:
    """The logs that may exist. They are not listed: there may be thousands, and each listing may be a request."""

    newest: int = 0  # attempt
    ranks: int = 1  # those of the largest attempt

    @classmethod
    def of(cls, attempts: Sequence[int], history: AttemptHistory) -> RunLogs:
        newest = max([*attempts, *(span.number for span in history.attempts)], default=0)
        return cls(newest, max((span.world_size for span in history.attempts), default=1))


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
    health: RunHealth
    lost_s: float  # to failures
    history: AttemptHistory
    moments: list[timeline.Moment]
    ledger: Ledger
    failures: list[PageFailure]
    checkpoints: list[PageCheckpoint]
    pending: list[PendingCheckpoint]
    quarantined: list[tuple[str, str]]
    settings: list[SettingsGroup]
    settings_changes: list[SettingsChange]
    damage: list[Damage]
    logs: RunLogs
    hangs: list[tuple[int, int]]  # attempts whose stacks were taken, with the rank that seems to hang, or -1
    version: str

    @property
    def failure_kinds(self) -> str:
        counts = Counter(failure.account.kind for failure in self.failures)
        return (
            ", ".join(f"{kind}{f' ({count})' if count > 1 else ''}" for kind, count in counts.most_common()) or "none"
        )


def version_of(found: Reading, history: AttemptHistory, pending: Sequence[PendingCheckpoint]) -> str:
    """Differs when there is something new to show."""
    trouble = trouble_of(found, history)
    return f"{found.state} {len(found.records)} {found.last_report[0]} {len(pending)} {len(trouble)}"


def is_long(stored: StoredRun) -> bool:
    """Whether reading the journal takes so long that the page is shown first and requests its content afterwards."""
    return stored.journal_size() > _LONG_JOURNAL


def glance(stored: StoredRun) -> str:
    """Only the version, for a page that waits for changes."""
    found = stored.read(with_manifests=False)
    history = _history(stored, found)
    return version_of(found, history, pending_of(stored, found))


def _history(stored: StoredRun, found: Reading) -> AttemptHistory:
    written = stored.of_journal("history", lambda: WrittenHistory(found.records))
    return written.until(None if found.driver is None else time.time())


def pending_of(stored: StoredRun, found: Reading) -> list[PendingCheckpoint]:
    if found.driver is None and found.past.ended is not None:
        return []
    return pending_checkpoints(stored.location, stored.known_identity(), found.past.attempts)


def run_view(stored: StoredRun, found: Reading | None = None) -> RunView:
    found = stored.read() if found is None else found
    history = _history(stored, found)
    ledger = found.quick_ledger(QUICKLY_READ)
    identity, pending = stored.known_identity(), pending_of(stored, found)
    reports, last = found.last_report
    progress, progress_text = progress_of(identity.get("train_loop_config"), last and last["metrics"], reports)
    trouble = trouble_of(found, history)
    return RunView(
        name=stored.location.name,
        path=str(stored.location),
        state=found.state,
        driver=driver_text(found.driver),
        has_driver=found.driver is not None,
        reports=reports,
        metrics=wording.metrics(found.metrics, 8),
        progress=progress,
        progress_text=progress_text,
        eta_s=eta_s(found, history, progress),
        changed=found.last_change,
        trouble=[text for text in trouble if found.driver is not None],  # else the title or the damage says it
        health=health_of(found, history, ledger, trouble),
        lost_s=lost_s(ledger),
        history=history,
        moments=stored.of_journal("moments", lambda: timeline.moments(found.records)[-_SHOWN_MOMENTS:]),
        ledger=ledger,
        failures=_failures(stored, history, ledger),
        checkpoints=_checkpoints(found, history.resumed),
        pending=pending,
        quarantined=stored.quarantined(),
        settings=_settings(identity),
        settings_changes=_changes(found.records),
        damage=[*stored.run_file_damage(), *stored.journal_damage(), *stored.manifest_damage()],
        logs=RunLogs.of(stored.attempts(), history),
        hangs=_hangs(found.records),
        version=version_of(found, history, pending),
    )


def _hangs(records: Sequence[Record]) -> list[tuple[int, int]]:
    taken = {
        record.body.get("generation", 0): record.body.get("rank", -1)
        for record in records
        if record.kind == "StacksTaken"
    }
    return sorted(taken.items())


def _failures(stored: StoredRun, history: AttemptHistory, ledger: Ledger) -> list[PageFailure]:
    recovered = [entry.recovered_s for entry in ledger.failures]
    with_rank = [account for account in history.failures[-_FAILURES_WITH_LINES:] if account.rank >= 0]
    read = in_parallel(lambda account: last_lines(stored, account.attempt, account.rank), with_rank)
    lines = {account.number: found for account, found in zip(with_rank, read, strict=True)}
    shown = []
    first = len(history.failures) - _FAILURES_WITH_LINES
    for place, account in enumerate(history.failures):
        if place >= first and account.at < 0 and not account.live:
            account = _located(stored, history, account)
        failure = PageFailure(
            replace(
                account,
                text=wording.lines(account.text),
                message=wording.lines(account.message),
                knock_on=tuple(wording.line(text) for text in account.knock_on[:20]),
            ),
            recovered[place] if place < len(recovered) else None,
        )
        failure.last_lines = lines.get(account.number, [])
        shown.append(failure)
    return shown[::-1]


def _located(stored: StoredRun, history: AttemptHistory, account: FailureAccount) -> FailureAccount:
    """The account with the last report of its attempt. A rank that hung did not send it, but its reports show it."""
    spans = [span for span in history.attempts if span.number >= account.attempt]
    last = next(filter(None, map(parse_line, stored.reports_backwards(account.attempt))), None)
    if last is None or not spans or spans[0].number != account.attempt:
        return account
    at = spans[0].base + last["index"] + 1
    return replace(account, at=at, lost=max(0, at - spans[1].base) if len(spans) > 1 else account.lost)


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
            _validation(found.validation(manifest)),
            wording.metrics(found.metrics_with(manifest), 3),
            manifest.id in resumed,
        )
        for manifest in found.manifests[: -_SHOWN_CHECKPOINTS - 1 : -1]
    ]


def _validation(status: ValidationStatus) -> str:
    return "" if status is ValidationStatus.NONE else status.value.replace("_", " ").lower()


def _settings(identity: Mapping[str, Any]) -> list[SettingsGroup]:
    titles = {
        "train_loop_config": "Train function",
        "scaling": "Workers",
        "failure": "Failures",
        "checkpoint": "Checkpoints",
    }
    known = [("trainer", identity.get("trainer")), ("experiment", identity.get("experiment"))]
    starts = [SettingsGroup("Run", [(name, wording.value(value)) for name, value in known if value], [])]
    for key, title in titles.items():
        part = identity.get(key)
        items = list(flat_items(part)) if isinstance(part, Mapping) else []
        given = [(wording.line(name), wording.value(value)) for name, value in items if value is not None]
        starts.append(SettingsGroup(title, given, [wording.line(name) for name, value in items if value is None]))
    return [started for started in starts if started.given or started.unset]


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
    """All metrics as curves: kept reports and discarded ones, separately."""
    starts = found.past.attempts
    share = index.advance(starts, within_s, found.run)
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
        "metrics": sorted(metrics.values(), key=_is_counter),
        "failures": [
            {"x": at, "kind": f.kind, "text": wording.line(f.text)[:200], "number": f.number}
            for f in history.failures
            if (at := f.at if f.at >= 0 else _reached(known.get(f.attempt))) >= 0
        ],
    }


def _reached(attempt: AttemptCurves | None) -> int:
    """The number of reports up to the end of this attempt; -1 if it made none."""
    return -1 if attempt is None or attempt.last < 0 else attempt.base + attempt.last + 1


def _is_counter(metric: Mapping[str, Any]) -> bool:
    """Whether it only counts reports, as an epoch or a step does. Such a curve says little and comes last."""
    points = [point for part in metric["kept"] for point in zip(part["x"], part["y"], strict=True)]
    return len({y - x for x, y in points}) == 1 and len(points) > 1


def _series(attempt: int, points: Sequence[tuple[float, float]]) -> dict[str, Any]:
    return {"attempt": attempt, "x": [x for x, _ in points], "y": [y for _, y in points]}
