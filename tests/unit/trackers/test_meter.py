"""The numbers follow what the driver sees, on a clock that the test turns."""

from __future__ import annotations

from msgspec import structs
from prometheus_client import CollectorRegistry, generate_latest

from holdfast.core.failures import FailureKind
from holdfast.core.run import events as ev
from holdfast.core.run.state import (
    Attempt,
    CheckpointRecord,
    Failure,
    HandoverReason,
    Pending,
    Phase,
    Rank,
    Ranks,
    RankSet,
    RankStatus,
    RunState,
)
from holdfast.trackers.run_meter import Meter


def page(meter: Meter) -> str:
    registry = CollectorRegistry()
    registry.register(meter)
    return generate_latest(registry).decode()


class Story:
    """Tells a meter what a driver would, one moment after the other."""

    def __init__(self) -> None:
        self.now = 100.0
        self.state = RunState()
        self.meter = Meter("a run", clock=lambda: self.now)

    def tell(self, event: ev.Event, at: float, **changes: object) -> None:
        self.now = at
        before = self.state
        parts = {part: changes.pop(part) for part in ("phase", "attempt") if part in changes}
        self.state = structs.replace(before, durable=structs.replace(before.durable, **changes), **parts)
        self.meter.saw(event, before, self.state)

    def start_attempt(self, at: float, attempt_number: int, base: int) -> None:
        attempt = Attempt(Ranks((Rank(RankStatus.RUNNING),) * 2), started=at)
        changes = {"phase": Phase.RUNNING, "attempt_number": attempt_number, "base": base, "attempt_size": 2}
        self.tell(ev.AttemptStarted(attempt_number, 2, None, base), at, attempt=attempt, **changes)

    def report(self, at: float, reports: int, staged: bool = False) -> None:
        """Of both ranks, rank 0 the first."""
        attempt_number, index = self.state.attempt_number, reports - 1
        number = self.state.base + reports
        pending = dict(self.state.pending)
        if staged:
            pending[index] = Pending(f"checkpoint_{number}", number, attempt_number, index, 2, staged=RankSet.of(0))
        event: ev.Event = (
            ev.ShardStaged(attempt_number, 0, index) if staged else ev.Progressed(attempt_number, 0, reports)
        )
        self.tell(event, at, attempt=Attempt(Ranks((Rank(RankStatus.RUNNING, reports),) * 2), 0.0, pending=pending))

    def commit(self, at: float, index: int) -> None:
        pending = dict(self.state.pending)
        done = pending.pop(index)
        record = CheckpointRecord(done.id, done.report)
        checkpoints = (*self.state.checkpoints, record)
        attempt = Attempt(self.state.ranks, 0.0, pending=pending)
        self.tell(ev.Committed(record, self.state.attempt_number, index), at, attempt=attempt, checkpoints=checkpoints)

    def fail(self, at: float, kind: FailureKind = FailureKind.CRASH) -> None:
        failure = Failure(self.state.attempt_number, 1, kind, "it died")
        self.tell(ev.AttemptGone(self.state.attempt_number), at, failure=failure, phase=Phase.SETTLING)

    def values(self) -> dict[str, float]:
        lines = [line for line in page(self.meter).splitlines() if not line.startswith("#")]
        named = (line.rpartition(" ") for line in lines)
        return {
            name.replace('run="a run"', "").replace("{}", "").replace(",}", "}").replace("{,", "{"): float(v)
            for name, _, v in named
        }


def test_reports_checkpoints_and_lag() -> None:
    story = Story()
    story.start_attempt(101, 1, base=0)
    story.report(103, 1)
    story.report(104, 2, staged=True)
    story.now = 107
    waiting = story.values()
    assert (waiting["holdfast_checkpoints_waiting"], waiting["holdfast_checkpoint_lag_seconds"]) == (1, 3)
    story.commit(108, index=1)
    story.meter.warned("storage is behind")
    story.now = 110
    values = story.values()
    assert values["holdfast_report_number"] == values["holdfast_reports_total"] == 2
    assert values["holdfast_checkpoints_total"] == values["holdfast_warnings_total"] == 1
    assert values["holdfast_checkpoint_lag_seconds"] == values["holdfast_checkpoints_waiting"] == 0
    assert (values["holdfast_checkpoint_seconds_sum"], values["holdfast_checkpoint_seconds_count"]) == (4, 1)
    assert values['holdfast_checkpoint_seconds_bucket{le="1.0"}'] == 0
    assert values['holdfast_checkpoint_seconds_bucket{le="5.0"}'] == 1
    assert values['holdfast_checkpoint_seconds_bucket{le="+Inf"}'] == 1
    assert (values["holdfast_world_size"], values["holdfast_attempt"]) == (2, 1)
    assert (values['holdfast_phase{phase="running"}'], values['holdfast_phase{phase="ended"}']) == (1, 0)
    # Rank 0 reported at 103 and 104: the second between them is productive, of ten.
    assert (values["holdfast_productive_seconds_total"], values["holdfast_goodput_ratio"]) == (1, 0.1)


def test_a_failure_takes_back_what_no_checkpoint_has() -> None:
    story = Story()
    story.start_attempt(100, 1, base=0)
    for number in range(1, 8):
        story.report(100 + number, number, staged=number in (3, 5))
        if number == 4:
            story.commit(104, index=2)
    story.fail(108)
    assert story.values()["holdfast_productive_seconds_total"] == 6
    story.start_attempt(110, 2, base=3)
    values = story.values()
    assert values["holdfast_steps_lost_total"] == 4
    assert values["holdfast_report_number"] == 3
    assert values["holdfast_reports_total"] == 7
    assert values["holdfast_productive_seconds_total"] == 2
    assert values['holdfast_failures_total{cause="crash"}'] == values['holdfast_restarts_total{cause="crash"}'] == 1
    story.report(112, 1)
    story.report(115, 2)
    assert story.values()["holdfast_productive_seconds_total"] == 5
    assert story.values()["holdfast_report_number"] == 5


def test_a_failure_is_counted_when_its_cause_is_certain() -> None:
    story = Story()
    story.start_attempt(100, 1, base=0)
    felt = Failure(1, 0, FailureKind.USER_ERROR, "connection closed")
    story.tell(ev.AttemptGone(0), 101, failure=felt, phase=Phase.STOPPING)
    story.fail(102, FailureKind.NODE_LOST)
    counted = {name: value for name, value in story.values().items() if name.startswith("holdfast_failures_total")}
    assert counted == {'holdfast_failures_total{cause="node lost"}': 1}


def test_a_planned_restart_loses_nothing() -> None:
    story = Story()
    story.start_attempt(100, 1, base=0)
    story.report(101, 1)
    story.report(102, 2, staged=True)
    story.tell(ev.HandedOver(1, HandoverReason.RESIZE), 103)
    story.commit(104, index=1)
    story.start_attempt(105, 2, base=2)
    values = story.values()
    assert values['holdfast_restarts_total{cause="resize"}'] == 1
    assert values["holdfast_steps_lost_total"] == 0
    assert values["holdfast_productive_seconds_total"] == 1
    assert not any(name.startswith("holdfast_failures_total") for name in values)


def test_a_driver_that_goes_on_begins_with_what_was_there() -> None:
    """What an earlier driver reported is none of its reports, and none that it lost."""
    story = Story()
    story.start_attempt(100, 4, base=50)
    story.report(101, 1)
    values = story.values()
    assert (values["holdfast_report_number"], values["holdfast_reports_total"]) == (51, 1)
    assert (values["holdfast_steps_lost_total"], values["holdfast_productive_seconds_total"]) == (0, 0)


def test_memory_does_not_grow_with_reports() -> None:
    story = Story()
    story.start_attempt(100, 1, base=0)
    for number in range(1, 200):
        story.report(100 + number, number, staged=number % 10 == 0)
        if number % 10 == 0:
            story.commit(100 + number, index=number - 1)
            kept = structs.replace(story.state.durable, checkpoints=story.state.checkpoints[-2:])
            story.state = structs.replace(story.state, durable=kept)
    assert len(story.meter._productive_at) < 10
    assert story.values()["holdfast_productive_seconds_total"] == 198


def test_names_are_escaped() -> None:
    assert 'run="a\\"b\\\\c\\nd"' in page(Meter('a"b\\c\nd'))
