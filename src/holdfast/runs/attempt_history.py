"""A run's attempts as intervals of time, for pictures: the drivers, the result of each attempt, and the cost of a
failure.

If a journal has lost records, the history is coarser; it never raises an exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace

import msgspec

from holdfast.core.budgets import action_taken
from holdfast.core.failures import classify, describe
from holdfast.core.run import events as ev
from holdfast.core.run import step as core
from holdfast.core.run.backpressure import TOLD_EVERY_S, Behind
from holdfast.core.run.state import Durable, Failure
from holdfast.store.journal import Record

from .ledger import written_early
from .timeline import live_text

RUNNING, FAILED, PLANNED, ENDED, KILLED = "running", "failed", "handed over", "ended", "driver killed"
REPLACED, BY_STANDBY, MOVED, NOT_LIVE = "replaced", "standby", "moved", "not-live"  # kinds of live moments


@dataclass(frozen=True)
class FailureAccount:
    """The first cause of an attempt's end, and what followed from it."""

    number: int
    time: float
    attempt: int
    rank: int  # -1: no single rank
    kind: str
    text: str
    action: str
    node: str = ""
    at: int = -1  # the report that the rank had come to; -1: not known
    exception: str = ""
    message: str = ""
    knock_on: tuple[str, ...] = ()
    resumed_from: str | None = None  # by the next attempt
    lost: int | None = None  # repeated reports; None before the next attempt
    live: bool = False  # the rank was replaced, and its peers kept their processes
    by_standby: bool = False  # by a standby worker


@dataclass
class AttemptSpan:
    number: int
    world_size: int
    began: float
    ended: float
    resume: str | None
    base: int
    driver: int
    outcome: str = RUNNING
    failure: int | None = None  # its number
    nodes: tuple[str, ...] = ()  # nodes across a network on which it may be placed
    joined: dict[str, float] = field(default_factory=dict)  # nodes that ranks moved to, and when


@dataclass
class DriverSpan:
    epoch: int
    began: float
    ended: float
    outcome: str = RUNNING


@dataclass(frozen=True)
class LiveMoment:
    """A rank got another process while the others kept theirs, or could not."""

    time: float
    kind: str
    text: str


@dataclass(frozen=True)
class SavedCheckpoint:
    time: float
    id: str
    report: int
    attempt: int


@dataclass
class AttemptHistory:
    attempts: list[AttemptSpan] = field(default_factory=list)
    drivers: list[DriverSpan] = field(default_factory=list)
    failures: list[FailureAccount] = field(default_factory=list)
    live: list[LiveMoment] = field(default_factory=list)
    saved: list[SavedCheckpoint] = field(default_factory=list)
    stalls: list[tuple[float, float]] = field(default_factory=list)  # training waited for storage
    waits: list[tuple[float, float]] = field(default_factory=list)  # for capacity
    is_stalled: bool = False
    behind: Behind | None = None  # how far storage is behind now, according to the driver
    began: float = 0.0
    ended: float = 0.0

    @property
    def resumed(self) -> set[str]:
        return {span.resume for span in self.attempts if span.resume is not None}

    @property
    def restarts_without_progress(self) -> int:
        """How many of the last attempts in a row began at the same report."""
        count = 0
        for earlier, later in zip(reversed(self.attempts[:-1]), reversed(self.attempts), strict=False):
            if later.base > earlier.base:
                break
            count += earlier.outcome == FAILED
        return count


def attempt_history(records: Sequence[Record], now: float | None = None) -> AttemptHistory:
    """``now``: the time up to which a driver that lives has driven; None if there is none."""
    return WrittenHistory(records).until(now)


class WrittenHistory:
    """The history that a journal has, which time makes longer."""

    def __init__(self, records: Sequence[Record]) -> None:
        times = [record.time for record in records]
        self._scribe = _Scribe(AttemptHistory(began=min(times, default=0.0)))
        for record, is_early in zip(records, written_early(records), strict=True):
            event = _event(record)
            if event is not None:
                self._scribe.enter(event, record.time)
            if not is_early:
                self._scribe.last = max(self._scribe.last, record.time)

    def until(self, now: float | None) -> AttemptHistory:
        return self._scribe.copied().close(now)


def _event(record: Record) -> ev.Event | None:
    kind = ev.DURABLE.get(record.kind)
    try:
        return None if kind is None else msgspec.convert(record.body, kind)
    except msgspec.ValidationError:
        return None


class _Scribe:
    def __init__(self, history: AttemptHistory) -> None:
        self.history, self.last = history, history.began
        self._state = Durable()
        self._stalled: float | None = None
        self._waits: float | None = None
        self._behind: tuple[float, Behind] | None = None  # when it was said

    def enter(self, event: ev.Event, time: float) -> None:
        history, before = self.history, self._state
        try:
            self._state = core.replay(before, event)
        except LookupError:  # it refers to something in a lost record
            return
        match event:
            case ev.DriverStarted(epoch):
                self._end_driver(self.last, KILLED)
                history.drivers.append(DriverSpan(epoch, time, time))
            case ev.AttemptStarted():
                self._begin(event, time)
            case ev.WorkerFailed():
                self._worker_failed(event, before)
            case ev.HandedOver():
                self._end_attempt(time, PLANNED)
            case ev.Regrouped():
                history.live.append(LiveMoment(time, BY_STANDBY if event.by_standby else REPLACED, live_text(event)))
                self._continue_live(event)
            case ev.RankMoved():
                history.live.append(LiveMoment(time, MOVED, live_text(event)))
                self._move(event, time)
            case ev.RegroupFailed():
                history.live.append(LiveMoment(time, NOT_LIVE, live_text(event)))
                self._end_attempt(time, FAILED, history.failures[-1].number if history.failures else None)
            case ev.StorageLags(stalled, checkpoints, size, seconds):
                self._stall(time, stalled)
                self._behind = time, Behind(checkpoints, size, seconds)
            case ev.CapacityLacking() if self._waits is None:
                self._waits = time
            case ev.Committed(record, attempt_number):
                history.saved.append(SavedCheckpoint(time, record.id, record.report, attempt_number))
            case ev.RunEnded(outcome):
                self._end_attempt(time, ENDED)
                self._end_driver(time, outcome.value)
        failure = self._state.failure
        if failure is not None and failure is not before.failure:
            self._fail(failure, time, event)

    def copied(self) -> _Scribe:
        """For ``close``, which changes what it closes."""
        known, copied = self.history, copy(self)
        copied.history = replace(
            known,
            attempts=[replace(span) for span in known.attempts],
            drivers=[replace(span) for span in known.drivers],
            stalls=list(known.stalls),
            waits=list(known.waits),
        )
        return copied

    def close(self, now: float | None) -> AttemptHistory:
        history = self.history
        history.is_stalled = self._stalled is not None and now is not None
        end = self.last if now is None else max(now, self.last)
        if now is not None and self._behind is not None and self._behind[1].checkpoints:
            is_recent = now < self._behind[0] + 2 * TOLD_EVERY_S
            history.behind = self._behind[1] if history.is_stalled or is_recent else None
        self._stall(end, False)
        self._end_wait(end)
        if now is None:
            self._end_driver(self.last, KILLED)
        spans: list[AttemptSpan | DriverSpan] = [*history.attempts, *history.drivers]
        for span in spans:
            if span.outcome == RUNNING:
                span.ended = end
        history.ended = end
        return history

    def _begin(self, event: ev.AttemptStarted, time: float) -> None:
        history = self.history
        self._end_wait(time)
        self._end_attempt(self.last, KILLED)
        epoch = history.drivers[-1].epoch if history.drivers else 0
        history.attempts.append(
            AttemptSpan(
                event.attempt_number, event.world_size, time, time, event.resume, event.base, epoch, nodes=event.leased
            )
        )
        if history.failures and history.failures[-1].lost is None:
            last = history.failures[-1]
            lost = max(0, last.at - event.base) if last.at >= 0 else 0
            history.failures[-1] = replace(last, resumed_from=event.resume, lost=lost)

    def _fail(self, failure: Failure, time: float, event: ev.Event) -> None:
        history = self.history
        of_worker = event if isinstance(event, ev.WorkerFailed) else None
        account = FailureAccount(
            len(history.failures) + 1,
            time,
            failure.attempt_number,
            failure.rank,
            failure.kind.value,
            failure.text,
            action_taken(self._state),
            of_worker.node if of_worker else "",
            of_worker.at if of_worker else -1,
            of_worker.evidence.exception if of_worker else "",
            of_worker.evidence.message if of_worker else "",
            live=of_worker is not None and of_worker.live,
        )
        if failure.instead and history.failures:
            last = history.failures[-1]
            knock_on = (*last.knock_on, last.text)
            history.failures[-1] = replace(account, number=last.number, time=last.time, at=last.at, knock_on=knock_on)
            return
        history.failures.append(account)
        if not account.live:
            self._end_attempt(time, FAILED, account.number)

    def _continue_live(self, event: ev.Regrouped) -> None:
        """The lost ranks were replaced: no step is done again."""
        for number, failure in enumerate(self.history.failures):
            if failure.live and failure.attempt == event.attempt_number and failure.lost is None:
                by_standby = failure.rank in event.by_standby
                self.history.failures[number] = replace(failure, lost=0, by_standby=by_standby)

    def _move(self, event: ev.RankMoved, time: float) -> None:
        span = self.history.attempts[-1] if self.history.attempts else None
        if span is not None and span.number == event.attempt_number:
            for node in event.leased:
                if node not in span.nodes:
                    span.nodes, span.joined = (*span.nodes, node), {**span.joined, node: time}

    def _worker_failed(self, event: ev.WorkerFailed, before: Durable) -> None:
        """One that came after the first cause is a knock-on failure."""
        failures = self.history.failures
        if self._state.failure is before.failure and failures and failures[-1].attempt == event.attempt_number:
            text = f"{describe(event.rank, event.evidence)} [{classify(event.evidence).value}]"
            failures[-1] = replace(failures[-1], knock_on=(*failures[-1].knock_on, text))

    def _end_attempt(self, time: float, outcome: str, failure: int | None = None) -> None:
        if self.history.attempts and self.history.attempts[-1].outcome == RUNNING:
            span = self.history.attempts[-1]
            span.ended, span.outcome, span.failure = max(time, span.began), outcome, failure

    def _end_driver(self, time: float, outcome: str) -> None:
        self._end_attempt(time, KILLED)
        self._stall(time, False)
        self._end_wait(time)
        if self.history.drivers and self.history.drivers[-1].outcome == RUNNING:
            span = self.history.drivers[-1]
            span.ended, span.outcome = max(time, span.began), outcome

    def _stall(self, time: float, stalled: bool) -> None:
        if stalled and self._stalled is None:
            self._stalled = time
        elif not stalled and self._stalled is not None:
            self.history.stalls.append((self._stalled, time))
            self._stalled = None

    def _end_wait(self, time: float) -> None:
        if self._waits is not None:
            self.history.waits.append((self._waits, time))
            self._waits = None
