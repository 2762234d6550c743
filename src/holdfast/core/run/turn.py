"""One step in the making: the state that changes, and the commands that come of it."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from holdfast.core.run import commands as do
from holdfast.core.run.state import Pending, Phase, RunState


class Turn:
    def __init__(self, state: RunState, now: float, durable: bool = False) -> None:
        self.state = state
        self.now = now
        self._durable = durable  # whether the event is
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
        if self.state.attempt is not None:
            self.state = structs.replace(self.state, attempt=structs.replace(self.state.attempt, **fields))

    def do(self, *commands: do.Command) -> None:
        self.commands.extend(commands)

    def jump(self, phase: Phase) -> None:
        """Where a durable event leads from any phase: a replay has not seen the volatile events in between."""
        self.change(phase=phase)

    def is_current(self, attempt_number: int) -> bool:
        """Whether the attempt may still be heard: it is the newest one, and not yet known to be gone."""
        alive = self.state.phase in (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)
        return attempt_number == self.state.attempt_number and alive

    def is_of_the_attempt(self, attempt_number: int) -> bool:
        return self.state.attempt is not None and attempt_number == self.state.attempt_number

    def set_rank(self, rank: int, **fields: Any) -> None:
        self.change_attempt(ranks=self.state.ranks.changed(rank, **fields))

    def saw_reports(self, rank: int, reports: int) -> None:
        """The rank has made so many, the last of them just now."""
        known = self.state.ranks[rank]
        if known.reports > 0:
            self.change(longest_gap=max(self.state.longest_gap, self.now - known.seen))
        self.set_rank(rank, reports=max(known.reports, reports), seen=self.now)

    def set_pending(self, pending: Pending) -> None:
        """Put a checkpoint's new state in the place of its old one."""
        if any(p.id == pending.id for p in self.state.carried):
            self.change(carried=tuple(pending if p.id == pending.id else p for p in self.state.carried))
        elif pending.index in self.state.pending:
            self.change_attempt(pending={**self.state.pending, pending.index: pending})
        else:
            known = {**self.state.pending, pending.index: pending}
            self.change_attempt(pending=dict(sorted(known.items())))

    def drop_pending(self, pending: Pending) -> None:
        """It is committed, or given up. Who waited for it continues, and has not hung meanwhile."""
        for rank in pending.awaited_by if self.is_of_the_attempt(pending.attempt_number) else ():
            self.set_rank(rank, seen=self.now)
        self.change(carried=tuple(p for p in self.state.carried if p.id != pending.id))
        self.change_attempt(pending={index: p for index, p in self.state.pending.items() if p.id != pending.id})

    def find_pending(self, attempt_number: int, index: int) -> Pending | None:
        if attempt_number == self.state.attempt_number and index in self.state.pending:
            return self.state.pending[index]
        return next((p for p in self.state.carried if (p.attempt_number, p.index) == (attempt_number, index)), None)
