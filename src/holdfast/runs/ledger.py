"""Where the wall-clock time of a run went, over all its drivers, from its journal and the times of rank 0's reports.

Every interval belongs to exactly one part, so the parts add up to the total. If a clock is set back, that interval has
no length, and damaged or missing records make the account coarser: nothing here is negative or raises an exception.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from enum import Enum

import msgspec
from msgspec import Struct, structs

from holdfast.core.run import events as ev
from holdfast.core.run import step as core
from holdfast.core.run.starting import backoff_s, in_doubt_s
from holdfast.core.run.state import Durable, Failure, HandoverReason, Tier
from holdfast.printable import percent, short_time
from holdfast.runs.past import IDENTITY
from holdfast.store.journal import Record
from holdfast.store.remote.sequence import EPOCH_BEGAN

Reports = Mapping[int, Sequence[tuple[int, float]]]  # attempt -> (index, time) of rank 0's reports

_GRID = 2.0**22  # ticks a second; the clock's times are multiples of them, and their sums are exact in floats
_TIMES = 2.0**32  # a time beyond this is invalid


class TimePart(str, Enum):
    PRODUCTIVE = "productive"
    REPEATED = "repeated"
    STALLED = "stalled"
    STARTING = "starting"
    RECOVERING = "recovering"
    WAITING = "waiting"
    CAPACITY = "capacity"
    DOWN = "down"
    FINISHING = "finishing"


_SPOKEN = {TimePart.CAPACITY.value: "without capacity"}


_IN_MEMORY = (Tier.MEMORY.value, Tier.PEER.value)


class FailureEntry(Struct, frozen=True, rename={"attempt_number": "attempt"}):
    time: float
    attempt_number: int
    rank: int  # -1: no single rank
    kind: str
    text: str
    recovered_s: float | None = None  # until the first report of a later attempt; None if there is none
    live: bool = False  # its peers kept their processes, and continued after ``recovered_s``
    standby: bool = False  # a standby worker took its rank
    tier: str = ""  # where the next attempt took its state from: memory, peer memory, checkpoint; empty: the beginning
    repeated: int = 0  # completed steps that it did again, as far as they are known

    def __str__(self) -> str:
        then = "no report since" if self.recovered_s is None else f"{short_time(self.recovered_s)} to the next report"
        if self.live and self.recovered_s is not None:
            by = " by a standby worker" if self.standby else ""
            then = f"replaced live{by}, {short_time(self.recovered_s)} until all ranks continued"
        again = f", {self.repeated} step{'' if self.repeated == 1 else 's'} repeated" if self.repeated else ""
        tier = f", from {self.tier}{again}" if self.tier in _IN_MEMORY or again else ""
        return f"{self.text} [{self.kind}]: {then}{tier}"


class Ledger(Struct, frozen=True):
    """The parts, in seconds. They add up to ``wall_clock_s``, from the first driver's start to the run's last sign.

    productive: between reports that are in the history.

    repeated: after the report that the next attempt started from, or after the last one of an attempt that failed.

    stalled: after an attempt's first report, while storage was so far behind that reports with files waited for it.

    Restarting is starting (from the start of a driver or attempt to the attempt's first report), recovering (from a
    failure or handover to the next attempt's start, without what follows) and waiting (the back-off before that start,
    or until no worker of the last driver can be left on nodes that did not come back).

    capacity: waiting for capacity for the minimum number of workers.

    Idle is down (no driver lived) and finishing (from the last report to the end).
    """

    wall_clock_s: float = 0.0
    productive_s: float = 0.0
    repeated_s: float = 0.0
    stalled_s: float = 0.0
    starting_s: float = 0.0
    recovering_s: float = 0.0
    waiting_s: float = 0.0
    capacity_s: float = 0.0
    down_s: float = 0.0
    finishing_s: float = 0.0
    failures: tuple[FailureEntry, ...] = ()

    @property
    def goodput(self) -> float:
        """The productive part of the wall-clock time, from 0 to 1."""
        return self.productive_s / self.wall_clock_s if self.wall_clock_s > 0 else 0.0

    @property
    def parts(self) -> dict[str, float]:
        return {part.value: getattr(self, f"{part.value}_s") for part in TimePart}

    def summary(self) -> str:
        """One line."""
        if not self.wall_clock_s:
            return "no timing information"
        count = len(self.failures)
        rest = [(name, s) for name, s in self.parts.items() if name != "productive" and s >= 0.05]
        lost = [f"{short_time(s)} {_SPOKEN.get(name, name)}" for name, s in rest]
        failed = f" ({count} failure{'' if count == 1 else 's'})" if count else ""
        return f"{short_time(self.wall_clock_s)}: {', '.join([f'{percent(self.goodput)} productive', *lost])}{failed}"

    def __str__(self) -> str:
        whole = self.wall_clock_s or 1.0
        shown = {"wall-clock": self.wall_clock_s, **{name: s for name, s in self.parts.items() if s > 0}}
        rows = [f"{name:<11} {short_time(s):>9} {percent(s / whole):>6}" for name, s in shown.items()]
        return "\n".join([*rows, *map(str, self.failures)])


def account(records: Sequence[Record], reports: Reports) -> Ledger:
    """The ledger of a run with these journal records and these reports of rank 0, by attempt."""
    events = [_event(record) for record in records]
    early = written_early(records)
    times = (record.time for record, skip in zip(records, early, strict=True) if not skip)
    bookkeeper = _Bookkeeper(next(filter(_is_time, times), 0.0), reports, _limits(events))
    state = Durable()
    for record, event, skip in zip(records, events, early, strict=True):
        before, state = state, _replayed(state, event)
        if not skip:
            failure = state.failure if state.failure is not before.failure else None
            bookkeeper.enter(record, event, failure, before, state.verdict is not None)
    return bookkeeper.close()


def _event(record: Record) -> ev.Event | None:
    try:
        return msgspec.convert(record.body, ev.DURABLE[record.kind])
    except (KeyError, msgspec.ValidationError):
        return None


def _replayed(state: Durable, event: ev.Event | None) -> Durable:
    try:
        return state if event is None else core.replay(state, event)
    except LookupError:  # it refers to something in a lost record
        return state


def _limits(events: Sequence[ev.Event | None]) -> list[float]:
    """For each attempt in turn: where its reports were cut, in the run's numbers, as a later attempt began there."""
    bases = [event.base for event in events if isinstance(event, ev.AttemptStarted)]
    limits = [math.inf]
    for base in reversed(bases[1:]):
        limits.append(min(base, limits[-1]))
    return limits[::-1]


def written_early(records: Sequence[Record]) -> list[bool]:
    """The records that a driver wrote just before its start record: they are not signs of its predecessor's life."""
    early: list[bool] = []
    starts = False
    for record in reversed(records):
        if record.kind == ev.DriverStarted.__name__:
            starts = True
            early.append(False)
            continue
        starts = starts and (_is_found(record) or record.kind == IDENTITY)
        early.append(starts or record.kind == IDENTITY)
    return early[::-1]


def _is_found(record: Record) -> bool:
    """Whether a starting driver found it in storage, because its predecessor did not record it."""
    if record.kind == ev.Committed.__name__:
        return bool(record.body.get("index", -1) == -1)
    return record.kind == ev.Damaged.__name__


class _Clock:
    """Seconds since the run began: continues as the times that it is shown do, stands still where they go back."""

    def __init__(self, time: float, at: float) -> None:
        self.time, self.at = _on_grid(time), at

    def show(self, time: float) -> float:
        if _is_time(time):
            time = _on_grid(time)
            self.at += max(0.0, time - self.time)
            self.time = time
        return self.at


class _Attempt(Struct):
    attempt_number: int
    base: int
    limit: float
    clock: _Clock  # of its reports: they may come from another machine


class _Stall(Struct):
    begin: float
    end: float = math.inf
    part: TimePart = TimePart.STALLED


class _Bookkeeper:
    """Charges the time since the last charge to a part, up to ever later moments."""

    def __init__(self, begin: float, reports: Reports, limits: Sequence[float]) -> None:
        self._reports, self._limits = reports, iter(limits)
        self._seconds = dict.fromkeys(TimePart, 0.0)
        self._clock = _Clock(begin, 0.0)
        self._charged = self._alive = 0.0
        self._attempt: _Attempt | None = None
        self._stalls: deque[_Stall] = deque()  # that are not charged yet, in order
        self._epoch: object = None  # that began with its own record, if storage is remote
        self._between = TimePart.STARTING  # the driver's activity when there is no attempt
        self._doubt_s = 0.0  # how long the driver may wait for nodes before it starts an attempt
        self._failures: list[FailureEntry] = []
        self._open: dict[int, float] = {}  # failures that no report has followed yet, and when they were

    def enter(
        self, record: Record, event: ev.Event | None, failure: Failure | None, before: Durable, is_over: bool
    ) -> None:
        """``is_over``: the attempt ends, or has ended."""
        at = self._clock.show(record.time)
        if record.kind == EPOCH_BEGAN:
            self._take_over(at)
            self._epoch = record.body.get("epoch")
        match event:
            case ev.DriverStarted(epoch):
                if epoch != self._epoch:
                    self._take_over(at)
                self._charge(at, self._between)
                self._doubt_s = max(in_doubt_s(before, event).values(), default=0.0)
            case ev.AttemptStarted():
                self._begin_attempt(event, at, before)
            case ev.CapacityLacking():
                self._prepare_attempt(at, before)
                self._between = TimePart.CAPACITY
            case ev.HandedOver(attempt_number) if (
                self._attempt is not None and attempt_number == self._attempt.attempt_number
            ):
                self._between = TimePart.FINISHING if event.reason is HandoverReason.STOP else TimePart.RECOVERING
                self._leave(at, at, self._between)
            case ev.StorageLags(stalled):
                self._stall(at, stalled)
            case ev.RunEnded():
                if self._between is not TimePart.CAPACITY:
                    self._between = TimePart.FINISHING
                self._leave(at, at, TimePart.FINISHING)
                self._between = TimePart.FINISHING
            case ev.Regrouped():
                self._end_live_recovery(at, done=True)
            case ev.RegroupFailed():
                self._end_live_recovery(at, done=False)
        if failure is not None and isinstance(event, ev.WorkerFailed) and event.live and not is_over:
            self._recover_live(failure, at, event.standby > 0)
        elif failure is not None:
            self._fail(failure, at)
        self._alive = at

    def _fail(self, failure: Failure, at: float) -> None:
        where = (failure.attempt_number, failure.rank, failure.kind.value, failure.text)
        if failure.instead and self._failures:
            self._failures[-1] = FailureEntry(self._failures[-1].time, *where)
            return
        self._end_attempt(at)
        self._open[len(self._failures)] = at
        self._failures.append(FailureEntry(self._clock.time, *where))

    def _recover_live(self, failure: Failure, at: float, standby: bool) -> None:
        """The attempt continues when the rank is replaced."""
        where = (failure.attempt_number, failure.rank, failure.kind.value, failure.text)
        self._open[len(self._failures)] = at
        self._failures.append(FailureEntry(self._clock.time, *where, live=True, standby=standby))
        if self._open_stall(TimePart.RECOVERING) is None:
            self._stalls.append(_Stall(at, part=TimePart.RECOVERING))

    def _end_live_recovery(self, at: float, done: bool) -> None:
        stall = self._open_stall(TimePart.RECOVERING)
        if stall is not None:
            stall.end = at
        if done:
            self._recovered(at)
        else:
            self._end_attempt(at)

    def _end_attempt(self, at: float) -> None:
        """After a failure. A rank that was being replaced then is not."""
        given_up = {number: when for number, when in self._open.items() if self._failures[number].live}
        self._open = {number: when for number, when in self._open.items() if number not in given_up}
        for number in given_up:
            self._failures[number] = structs.replace(self._failures[number], live=False, standby=False)
        self._leave(at, at, TimePart.REPEATED)
        self._between = TimePart.RECOVERING
        self._open.update(given_up)

    def _open_stall(self, part: TimePart) -> _Stall | None:
        return next((stall for stall in self._stalls if stall.part is part and stall.end == math.inf), None)

    def close(self) -> Ledger:
        self._leave(self._alive, math.inf, TimePart.FINISHING)
        seconds = {f"{part.value}_s": s for part, s in self._seconds.items()}
        return Ledger(self._charged, **seconds, failures=tuple(self._failures))

    def _take_over(self, at: float) -> None:
        self._leave(self._alive, at, TimePart.REPEATED)
        self._charge(at, TimePart.DOWN)
        self._between = TimePart.STARTING
        self._doubt_s = 0.0
        self._stalls.clear()

    def _begin_attempt(self, event: ev.AttemptStarted, at: float, before: Durable) -> None:
        self._prepare_attempt(at, before, waits=event.snapshot is None or event.streak != 0)
        for number in self._open:
            how = {"tier": event.tier.value, "repeated": event.redone}
            self._failures[number] = structs.replace(self._failures[number], **how)
        self._between = TimePart.RECOVERING  # once the attempt has ended
        self._attempt = _Attempt(event.attempt_number, event.base, next(self._limits), _Clock(self._clock.time, at))

    def _prepare_attempt(self, at: float, before: Durable, waits: bool = True) -> None:
        """Charge the time before the next attempt starts, or begins to wait for capacity."""
        if self._attempt is not None:  # the record of its end is lost
            self._leave(self._alive, at, TimePart.REPEATED)
        if self._between is TimePart.RECOVERING:
            waited = max(0.0, min(at - self._charged, backoff_s(before) if waits else 0.0))
            self._charge(at - _on_grid(waited), TimePart.RECOVERING)
            self._charge(at, TimePart.WAITING)
        in_doubt, self._doubt_s = max(0.0, min(at - self._charged, self._doubt_s)), 0.0
        self._charge(self._charged + _on_grid(in_doubt), TimePart.WAITING)
        self._charge(at, self._between)

    def _stall(self, at: float, on: bool) -> None:
        stall = self._open_stall(TimePart.STALLED)
        if on and stall is None:
            self._stalls.append(_Stall(at))
        elif stall is not None and not on:
            stall.end = at

    def _charge(self, until: float, part: TimePart) -> None:
        self._seconds[part] += max(0.0, until - self._charged)
        self._charged = max(until, self._charged)

    def _train(self, until: float, part: TimePart) -> None:
        """Charge the time of the attempt to a part, without the times in which its checkpoints waited for storage."""
        while self._stalls and self._stalls[0].begin < until:
            stall = self._stalls[0]
            self._charge(stall.begin, part)
            self._charge(min(until, stall.end), stall.part)
            if stall.end > until:
                break
            self._stalls.popleft()
        self._charge(until, part)

    def _leave(self, until: float, end: float, rest: TimePart) -> None:
        """Charge the time of the attempt, by its reports up to ``end``, and the rest, if any, up to ``until``."""
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            self._charge(until, self._between)
            return
        reports = self._reports.get(attempt.attempt_number, ())
        for number, (index, time) in enumerate(reports):
            at = min(end, attempt.clock.show(time))
            if number == 0:
                self._charge(at, TimePart.STARTING)
                self._recovered(at)
            else:
                self._train(at, TimePart.PRODUCTIVE if attempt.base + index < attempt.limit else TimePart.REPEATED)
        if reports:
            self._train(until, rest)
        self._charge(until, TimePart.STARTING)

    def _recovered(self, at: float) -> None:
        for number, failed in self._open.items():
            self._failures[number] = structs.replace(self._failures[number], recovered_s=max(0.0, at - failed))
        self._open.clear()


def _is_time(time: float) -> bool:
    return 0 <= time < _TIMES


def _on_grid(seconds: float) -> float:
    return round(seconds * _GRID) / _GRID
