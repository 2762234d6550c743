"""The result of one run in a drill, read from its storage and from the notes of its workers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.core.run.state import Outcome as Ended
from holdfast.core.run.state import Tier
from holdfast.drill.stage import Stage
from holdfast.runs.attempt_history import AttemptHistory, attempt_history
from holdfast.runs.ledger import Ledger
from holdfast.runs.past import Past
from holdfast.runs.reading import Reading
from holdfast.runs.stored_run import StoredRun

Record = dict[str, Any]  # the note of a worker before a report
PATIENCE_S = 20.0


@dataclass(frozen=True)
class SeenAttempt:
    attempt_number: int
    base: int
    world_size: int
    resumed: str | None
    tier: Tier = Tier.NONE


@dataclass
class RunOutcome:
    """One run of the script; most scripts have one."""

    name: str
    began: float
    finished: bool
    reason: str
    attempts: list[SeenAttempt]
    rows: list[dict[str, Any]]  # rank 0's reports in the surviving history
    times: dict[int, list[float]]  # of rank 0's reports, by attempt
    records: dict[int, dict[int, Record]]  # rank -> step -> note, in the surviving history
    checkpoint: Path | None  # the last one
    checkpoint_steps: list[int]  # of all that were ever committed
    quarantined: list[str] = field(default_factory=list)
    history: AttemptHistory = field(default_factory=AttemptHistory)
    ledger: Ledger = field(default_factory=Ledger)
    identity: dict[str, Any] = field(default_factory=dict)
    cannot: dict[str, str] = field(default_factory=dict)  # the faults that are not possible where it runs, and why

    @property
    def world_sizes(self) -> list[int]:
        return [attempt.world_size for attempt in self.attempts]

    @property
    def changes_size(self) -> bool:
        """An undisturbed elastic run whose nodes join and leave. The step at which this happens may differ each
        time."""
        return len(set(self.world_sizes)) > 1

    @property
    def lost(self) -> int:
        """How many reports were made that a later attempt made again."""
        made = [len(self.times.get(attempt.attempt_number, ())) for attempt in self.attempts]
        pairs = zip(self.attempts, made, self.attempts[1:], strict=False)
        return sum(max(0, attempt.base + count - after.base) for attempt, count, after in pairs)

    @property
    def state_from(self) -> str:
        """Where the last recovery took the state from; empty if there was none."""
        replaced = [failure for failure in self.ledger.failures if failure.live]
        if replaced:
            return "a peer, live, by a standby" if replaced[-1].standby else "a peer, live"
        return (self.attempts[-1].tier.value or "the beginning") if len(self.attempts) > 1 else ""

    @property
    def steps_again(self) -> int:
        """Completed steps that were repeated after a failure, if they are known: only with ``TrainState``."""
        return sum(failure.repeated for failure in self.ledger.failures)

    def next_report(self, struck: dict[str, Any]) -> float | None:
        """Seconds from the strike to the first report that was made after it, by another attempt if there is one."""
        moment, attempt_number = struck["time"], struck["attempt"]
        later = [t for g, times in self.times.items() if g > attempt_number for t in times if t > moment]
        found = later or [t for times in self.times.values() for t in times if t > moment]
        return min(found) - moment if found else None


def read(stage: Stage) -> list[RunOutcome]:
    """The runs, in the order in which they began."""
    names = sorted(path.name for path in stage.storage_dir.iterdir())
    stored = (StoredRun(stage.storage / name, PATIENCE_S) for name in names)
    found = [_read_run(stage, run.read(with_driver=False)) for run in stored if run.records()]
    return sorted(found, key=lambda run: run.began)


def _read_run(stage: Stage, found: Reading) -> RunOutcome:
    past, name = found.past, found.run.location.name
    attempts = [SeenAttempt(g.attempt_number, g.base, g.world_size, g.resume, g.tier) for g in past.attempts]
    return RunOutcome(
        name=name,
        began=found.records[0].time,
        finished=past.ended is not None and past.ended.outcome is Ended.FINISHED,
        reason=_reason(past),
        attempts=attempts,
        rows=found.rows,
        times={attempt_number: [report["time"] for report in made] for attempt_number, made in found.reports.items()},
        records=_surviving(stage, name, attempts),
        checkpoint=stage.storage_dir / name / "checkpoints" / found.manifests[-1].id if found.manifests else None,
        checkpoint_steps=sorted({r.body["record"]["report"] for r in found.records if r.kind == "Committed"}),
        quarantined=sorted(past.state.damaged),
        history=attempt_history(found.records),
        ledger=found.ledger,
        identity=past.identity or {},
        cannot=stage.attempt(name, attempts[0].attempt_number)["cannot"] if attempts else {},
    )


def _reason(past: Past) -> str:
    if past.ended is not None:
        return past.ended.reason
    return "its last driver was killed" if past.attempts else "it never began"


def _surviving(stage: Stage, run: str, attempts: list[SeenAttempt]) -> dict[int, dict[int, Record]]:
    """Each attempt's notes, cut where the next one started from."""
    notes: dict[int, dict[int, Record]] = {}
    for attempt in attempts:
        for by_step in notes.values():
            for step in [step for step in by_step if step > attempt.base]:
                del by_step[step]
        for rank in range(attempt.world_size):
            for record in _read_records(stage.record_file(run, attempt.attempt_number, rank)):
                notes.setdefault(rank, {})[record["step"]] = record | {"attempt": attempt.attempt_number}
    return notes


def _read_records(path: Path) -> list[Record]:
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return []
    records = []
    for line in lines:
        try:
            records.append(json.loads(line))
        except ValueError:
            break  # it was killed in the middle of a line
    return records
