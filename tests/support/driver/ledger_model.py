"""Runs made up step by step: what is written of them, and where their time went as the one who made them up knows."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from holdfast.core.failures import Evidence
from holdfast.core.run import events as ev
from holdfast.core.run.state import CheckpointRecord, HandoverReason, Outcome, RunSpec, ValidationStatus
from holdfast.runs.ledger import Ledger, TimePart
from holdfast.store.journal import Record

BEGIN = 1_790_000_000.0
SPEC = RunSpec(max_failures=-1, backoff_s=0.5, max_backoff_s=2.0)
SOME_TIME = st.integers(0, 4096).map(lambda n: n / 1024)
PLANNED = {"resize": HandoverReason.RESIZE, "preemption": HandoverReason.PREEMPTION, "stop": HandoverReason.STOP}


@dataclass
class Run:
    """Its steps take times that are drawn; each adds them to the part that they belong to."""

    draw: st.DrawFn
    now: float = BEGIN
    end: float = BEGIN
    records: list[Record] = field(default_factory=list)
    reports: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    rows: list[float] = field(default_factory=list)  # the time that each surviving report took
    expected: dict[str, float] = field(default_factory=lambda: {part.value: 0.0 for part in TimePart})
    failures: list[tuple[float, float | None]] = field(default_factory=list)
    streak: int = 0
    attempt_number: int = 0
    epoch: int = 0
    remote: bool = False
    stalled: bool = False
    last: bool = True

    @property
    def first(self) -> int:
        """The record that the run begins with."""
        begins = "EpochBegan" if self.remote else "DriverStarted"
        return next(n for n, record in enumerate(self.records) if record.kind == begins)

    def write(self, event: ev.Event) -> None:
        self.records.append(Record(len(self.records) + 1, self.now, *ev.journalled(event)))
        self.end = self.now

    def spend(self, part: TimePart, seconds: float | None = None) -> float:
        taken = self.draw(SOME_TIME) if seconds is None else seconds
        self.now += taken
        self.expected[part.value] += taken
        return taken

    def drive(self, last: bool) -> None:
        """One driver, from its start to its end or death."""
        self.last, self.stalled = last, False
        self.epoch += 1
        if not (self.begin_far_away() if self.remote else self.begin()):
            return
        self.spend(TimePart.STARTING)
        fate = self.train() if self.find_room() else "death"
        while fate in ("failure", "resize", "preemption") and self.draw(st.booleans()):
            self.recover()
            fate = self.train() if self.find_room() else "death"
        if fate == "stop":
            self.spend(TimePart.FINISHING)
            self.write(ev.RunEnded(Outcome.STOPPED, ""))
        if fate == "end":
            self.write(ev.RunEnded(Outcome.FINISHED, ""))
            self.streak = 0

    def begin(self) -> bool:
        self.records.append(Record(0, self.now, "RunConfigured", {}))
        if self.draw(st.booleans()):
            self.find_checkpoint()
        self.write(ev.DriverStarted(self.epoch, SPEC))
        return True

    def begin_far_away(self) -> bool:
        """It has the run as soon as its epoch began; it says that it started when it has looked around."""
        self.records.append(Record(0, self.now, "EpochBegan", {"epoch": self.epoch}))
        self.end = self.now
        self.records.append(Record(0, self.now, "RunConfigured", {}))
        for _ in range(self.draw(st.integers(0, 2))):
            self.spend(TimePart.STARTING)
            self.find_checkpoint()
        if self.draw(st.integers(0, 5)) == 0:
            return False
        self.spend(TimePart.STARTING)
        if self.draw(st.booleans()):
            self.find_checkpoint()
        self.write(ev.DriverStarted(self.epoch, SPEC))
        return True

    def find_checkpoint(self) -> None:
        self.write(ev.Committed(CheckpointRecord(f"found-{len(self.records)}", len(self.rows))))

    def find_room(self) -> bool:
        """Whether the driver comes to start a group."""
        if self.draw(st.booleans()):
            return True
        self.write(ev.CapacityLacking(2, 1))
        if self.draw(st.integers(0, 3)) == 0:
            return False
        self.spend(TimePart.CAPACITY)
        if self.draw(st.integers(0, 3)) == 0:
            self.write(ev.RunEnded(Outcome.STOPPED, ""))
            return False
        return True

    def recover(self) -> None:
        seconds = self.draw(SOME_TIME)
        backoff = min(SPEC.max_backoff_s, SPEC.backoff_s * 2 ** (self.streak - 2)) if self.streak > 1 else 0.0
        waited = min(seconds, backoff)
        self.spend(TimePart.RECOVERING, seconds - waited)
        self.spend(TimePart.WAITING, waited)

    def train(self) -> str:
        """One group, to its end."""
        self.attempt_number += 1
        base = self.draw(st.integers(0, len(self.rows)))
        self.expected["productive"] -= sum(self.rows[base:])
        self.expected["repeated"] += sum(self.rows[base:])
        del self.rows[base:]
        self.write(ev.AttemptStarted(self.attempt_number, 1, None, base))
        count = self.draw(st.integers(0, 4))
        for index in range(count):
            self.report(index)
        fate = self.draw(st.sampled_from(["end", "death", "failure", *PLANNED]))
        if fate == "death" and self.draw(st.booleans()):
            return fate
        lost = fate == "failure" or (fate == "death" and not self.last)
        planned = TimePart.RECOVERING if fate in ("resize", "preemption") else TimePart.FINISHING
        self.work(TimePart.STARTING if not count else TimePart.REPEATED if lost else planned)
        if fate == "death":
            self.write(ev.Validated("", ValidationStatus.NONE))
        if fate in PLANNED:
            self.write(ev.HandedOver(self.attempt_number, PLANNED[fate]))
        if fate == "failure":
            self.write(ev.WorkerFailed(self.attempt_number, 0, Evidence(exit_code=1)))
            self.failures.append((self.now, None))
            self.streak += 1
        return fate

    def work(self, part: TimePart) -> float:
        """Some time of a group, in which storage may fall behind and catch up; what it takes beside the stalls."""
        taken = 0.0
        for _ in range(self.draw(st.integers(0, 2))):
            taken += self.work_on(part)
            self.stalled = self.draw(st.booleans())
            self.write(ev.StorageLags(self.stalled, 1, 1, 0.0))
        return taken + self.work_on(part)

    def work_on(self, part: TimePart) -> float:
        if self.stalled and part is not TimePart.STARTING:
            self.spend(TimePart.STALLED)
            return 0.0
        return self.spend(part)

    def report(self, index: int) -> None:
        taken = self.work(TimePart.PRODUCTIVE if index else TimePart.STARTING)
        self.rows.append(taken if index else 0.0)
        self.reports.setdefault(self.attempt_number, []).append((index, self.now))
        self.end = self.now
        if index == 0:
            self.failures = [(at, self.now - at if took is None else took) for at, took in self.failures]
        if self.draw(st.booleans()):
            id = f"checkpoint-{self.attempt_number}-{index}"
            self.write(ev.Committed(CheckpointRecord(id, len(self.rows)), self.attempt_number, index))
            self.streak = 0


@st.composite
def runs(draw: st.DrawFn) -> Run:
    run = Run(draw, remote=draw(st.booleans()))
    more = draw(st.integers(0, 3))
    run.drive(last=not more)
    while more:
        more -= 1
        run.spend(TimePart.DOWN, draw(st.integers(1, 4096)) / 1024)
        run.drive(last=not more)
    return run


def check_sum(ledger: Ledger) -> None:
    assert sum(ledger.parts.values()) == ledger.wall_clock_s
    assert min(ledger.parts.values()) >= 0
    assert 0 <= ledger.goodput <= 1
    assert all(f.recovered_s is None or f.recovered_s >= 0 for f in ledger.failures)
