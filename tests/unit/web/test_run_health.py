"""What a run's page says at a glance, and when a run counts as in trouble."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.failures import Evidence
from holdfast.core.run import events as ev
from holdfast.core.run.state import Outcome, RunSpec
from holdfast.runs.attempt_history import attempt_history
from holdfast.runs.ledger import FailureEntry, Ledger
from holdfast.runs.past import read_past
from holdfast.runs.reading import Reading
from holdfast.store.interfaces import LivingDriver
from holdfast.store.journal import Record
from holdfast.web.run_health import health_of, lost_s, trouble_of

SPEC = RunSpec(num_workers=2, max_failures=9)
START = [ev.DriverStarted(1, SPEC), ev.AttemptStarted(1, 2, None, 0)]
KILLED = ev.WorkerFailed(1, 1, Evidence(signal=9), "", 3)


class Known(Reading):
    """With that many reports, the last of them at that time."""

    def __init__(self, events: list[Any], living: bool, reports: int, last: float) -> None:
        records = [Record(number, float(number), *ev.journalled(event)) for number, event in enumerate(events)]
        driver = LivingDriver(1) if living else None
        super().__init__(None, driver, [], records, read_past(records))  # type: ignore[arg-type]
        self.last_report = reports, {"time": last, "metrics": {}}  # type: ignore[misc]


def look(
    events: list[Any], *, living: bool = True, reports: int = 4, last: float = 5.0, now: float = 6.0
) -> tuple[Any, list[str]]:
    found = Known(events, living, reports, last)
    history = attempt_history(found.records, now if living else None)
    trouble = trouble_of(found, history, now)
    return health_of(found, history, Ledger(), trouble), trouble


@pytest.mark.parametrize(
    ("events", "options", "tone", "title"),
    [
        (START, {}, "good", "Healthy"),
        (START, {"reports": 0}, "busy", "Starting: waiting for the first report of attempt 1"),
        ([*START, KILLED], {}, "busy", "Recovering"),
        (
            [*START, KILLED, ev.AttemptStarted(2, 2, None, 0)],
            {"reports": 0},
            "busy",
            "Recovering: waiting for the first report of attempt 2",
        ),
        ([*START, KILLED, ev.AttemptStarted(2, 2, None, 0)], {"reports": 2}, "good", "Healthy"),
        (START, {"living": False}, "bad", "Interrupted: no driver is running"),
        ([*START, ev.RunEnded(Outcome.FINISHED, "")], {"living": False}, "over", "Finished"),
        ([*START, ev.RunEnded(Outcome.FAILED, "rank 1 raised ValueError: no")], {"living": False}, "bad", "Failed"),
        ([*START, ev.RunEnded(Outcome.STOPPED, "")], {"living": False}, "over", "Stopped"),
    ],
)
def test_the_title_says_how_the_run_is(events: list[Any], options: dict[str, Any], tone: str, title: str) -> None:
    health, _ = look(events, **options)
    assert (health.tone, health.title) == (tone, title)


def test_a_failed_run_says_why_and_what_to_do() -> None:
    health, _ = look([*START, ev.RunEnded(Outcome.FAILED, "rank 1 raised ValueError: no")], living=False)
    assert health.text == "Rank 1 raised ValueError: no. Fix the error, then rerun the same command to start again."


@pytest.mark.parametrize(
    ("events", "options", "text"),
    [
        (START, {"now": 500.0}, "No report for 8 m 15 s: a rank may hang"),
        ([*START, ev.StacksTaken(1, 1)], {}, "Rank 1 seems to hang"),
        (
            [*START, ev.StorageLags(True, 70, 2 * 10**9, 3.0)],
            {},
            "Training waits for storage, which is behind by 70 checkpoints",
        ),
        ([*START, ev.StorageLags(False, 3, 9, 70.0)], {}, "Storage is behind by 3 checkpoints"),
        ([*START, ev.CapacityLacking(4, 2)], {}, "Waiting for nodes"),
        (
            [
                *START,
                KILLED,
                ev.AttemptStarted(2, 2, None, 0),
                ev.WorkerFailed(2, 1, Evidence(signal=9)),
                ev.AttemptStarted(3, 2, None, 0),
            ],
            {"reports": 0},
            "2 restarts without progress",
        ),
    ],
)
def test_trouble_stands_out(events: list[Any], options: dict[str, Any], text: str) -> None:
    health, trouble = look(events, **options)
    assert trouble
    assert trouble[0].startswith(text)
    assert health.title == "Running, needs attention"
    assert look(events, **{**options, "living": False})[1] == []


def test_a_slow_report_alone_is_no_trouble() -> None:
    assert look(START, reports=4, last=400.0, now=500.0)[1] == []


def test_what_was_lost_has_the_start_of_workers_after_a_failure_once() -> None:
    failures = (
        FailureEntry(100.0, 1, 0, "crash", "", recovered_s=3.0),
        FailureEntry(101.0, 2, 0, "crash", "", recovered_s=2.0),  # before the next report
        FailureEntry(200.0, 3, 0, "crash", "", recovered_s=1.0),
    )
    ledger = Ledger(wall_clock_s=60.0, repeated_s=5.0, recovering_s=0.5, starting_s=6.0, down_s=2.0, failures=failures)
    assert lost_s(ledger) == 3.0 + 1.0 + 5.0 + 2.0
