"""How the ranks of a group come to know, all at the same place in their loops, that the group is about to end."""

from __future__ import annotations

import time

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run.state import HandoverReason, RankStatus, RunState
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import HandoverAt, Notice

from .fleet import Fleet


class HandingOver:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.notice: Notice | None = None  # the last one
        self._number = 0
        self._reports: dict[int, int] | None = None  # that each rank had made when it heard of it

    def ask(self, command: do.AskHandover) -> None:
        self._reports, self._number = {}, command.number
        deadline_ms = None if command.deadline_s is None else int((time.time() + command.deadline_s) * 1000)
        nodes = command.nodes if command.reason is HandoverReason.PREEMPTION else ()
        if command.reason is HandoverReason.STOP:
            nodes = tuple(self._fleet.roster.ids)
        going = self._fleet.ranks_on(command.generation, nodes)
        self.notice = Notice(command.generation, deadline_ms, going)
        self._fleet.tell(self.notice)

    def forget(self) -> None:
        """Another group begins."""
        self._reports = None

    def noticed(self, message: wire.WorkerNoticed, state: RunState) -> None:
        if self._reports is not None and message.generation == state.generation:
            self._reports[message.rank] = message.reports

    def settle(self, state: RunState) -> ev.HandoverSet | None:
        """When all ranks know that have not returned, fix the first report that none of them can have made."""
        if not self._reports or not state.group_lives:
            return None
        running = {rank for rank, known in enumerate(state.ranks) if known.status is not RankStatus.RETURNED}
        if not running <= self._reports.keys():
            return None
        index = max(self._reports.values()) + 1
        self._reports = None
        self._fleet.tell(HandoverAt(state.generation, index))
        return ev.HandoverSet(state.generation, index, self._number)
