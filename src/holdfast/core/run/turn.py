"""One step in progress: the state as it changes, and the commands so far."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run.ranks import NO_PROCESS
from holdfast.core.run.state import Pending, Phase, RankStatus, RunState

_OfProcess = ev.WorkerReady | ev.WorkerArmed | ev.WorkerReturned | ev.WorkerStopped | ev.RegroupAsked


class Turn:
    def __init__(self, state: RunState, now: float, durable: bool = False) -> None:
        self.state = state
        self.now = now
        self._durable = durable  # whether the event is durable
        self.commands: list[do.Command] = []

    def change(self, **fields: Any) -> None:
        """What ends with the driver."""
        self.state = structs.replace(self.state, **fields)

    def record(self, **fields: Any) -> None:
        """What survives the driver: only an event that is in the journal may change it."""
        assert self._durable
        self.state = structs.replace(self.state, durable=structs.replace(self.state.durable, **fields))

    def change_attempt(self, **fields: Any) -> None:
        """What ends with the attempt; between attempts there is nothing to change."""
        attempt = self.state.attempt
        if attempt is not None:
            self.state = structs.replace(self.state, attempt=structs.replace(attempt, **fields))

    def do(self, *commands: do.Command) -> None:
        self.commands.extend(commands)

    def jump(self, phase: Phase) -> None:
        """Enter a phase from any other one. A durable event does this, because a replay has not seen the volatile
        events in between."""
        self.change(phase=phase)

    def is_current(self, attempt_number: int) -> bool:
        """Whether events of the attempt still count: it is the newest one, and not known to have ended."""
        state = self.state
        return attempt_number == state.durable.attempt_number and (state.attempt_lives or state.phase is Phase.STOPPING)

    def is_present(self, event: _OfProcess) -> bool:
        """Whether it is of an attempt that counts, and of the process that has the rank."""
        return self.is_current(event.attempt_number) and self.state.ranks[event.rank].process == event.process

    def is_of_the_attempt(self, attempt_number: int) -> bool:
        return self.state.attempt is not None and attempt_number == self.state.attempt_number

    def set_rank(self, rank: int, **fields: Any) -> None:
        self.change_attempt(ranks=self.state.ranks.changed(rank, **fields))

    def give_rank(self, rank: int, process: int) -> None:
        """The rank now belongs to another process, which has not started yet."""
        known, fresh = self.state.ranks[rank], {"status": RankStatus.STARTING, "seen": self.now}
        before = known.process if known.before == NO_PROCESS else known.before  # one that never began made no reports
        self.set_rank(rank, **fresh, stopped=False, armed=False, process=process, before=before)

    def saw_reports(self, rank: int, reports: int) -> None:
        """The rank has made so many, the last of them just now."""
        known = self.state.ranks[rank]
        if known.reports > 0 and self.now - known.seen > self.state.longest_gap:
            self.change(longest_gap=self.now - known.seen)
        self.set_rank(rank, reports=max(known.reports, reports), seen=self.now)

    def set_pending(self, pending: Pending) -> None:
        """Replace the state of a pending checkpoint."""
        carried, known = self.state.carried, self.state.pending
        if carried and any(p.id == pending.id for p in carried):
            self.change(carried=tuple(pending if p.id == pending.id else p for p in carried))
        elif pending.index in known:
            self.change_attempt(pending={**known, pending.index: pending})
        else:
            self.change_attempt(pending=dict(sorted({**known, pending.index: pending}.items())))

    def drop_pending(self, pending: Pending) -> None:
        """The checkpoint is committed or given up. Ranks that waited for it continue; their wait was not a hang."""
        for rank in pending.awaited_by if self.is_of_the_attempt(pending.attempt_number) else ():
            self.set_rank(rank, seen=self.now)
        self.change(carried=tuple(p for p in self.state.carried if p.id != pending.id))
        self.change_attempt(pending={index: p for index, p in self.state.pending.items() if p.id != pending.id})

    def find_pending(self, attempt_number: int, index: int) -> Pending | None:
        if attempt_number == self.state.attempt_number and index in self.state.pending:
            return self.state.pending[index]
        return next((p for p in self.state.carried if (p.attempt_number, p.index) == (attempt_number, index)), None)
