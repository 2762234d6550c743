"""How the ranks of an attempt learn that it is about to end, all at the same place in their loops."""

from __future__ import annotations

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run.handover import handover_point
from holdfast.core.run.state import HandoverReason, RunState
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import HandoverAt, Notice

from .attempts import Attempts
from .node_registry import NodeRegistry
from .outbox import Outbox


class HandoverNotices:
    def __init__(self, nodes: NodeRegistry, outbox: Outbox, attempts: Attempts) -> None:
        self._nodes, self._outbox, self._attempts = nodes, outbox, attempts
        self.notice: Notice | None = None  # the last one
        self._number = 0
        self._reports: dict[int, int] = {}  # reports of each rank when it heard of the notice
        self._attempt_number = 0  # whose end is open; else 0

    def ask(self, command: do.AskHandover, wall: float) -> None:
        self._reports, self._number, self._attempt_number = {}, command.number, command.attempt_number
        deadline_ms = None if command.deadline_s is None else int((wall + command.deadline_s) * 1000)
        nodes = command.nodes if command.reason is HandoverReason.PREEMPTION else ()
        if command.reason is HandoverReason.STOP:
            nodes = tuple(self._nodes.ids)
        self.notice = Notice(
            command.attempt_number, deadline_ms, self._attempts.ranks_on(command.attempt_number, nodes)
        )
        self._outbox.tell(self.notice)

    def take_noticed(self, message: wire.WorkerNoticed, state: RunState) -> None:
        if message.attempt_number == self._attempt_number == state.attempt_number:
            self._reports[message.rank] = message.reports

    def settle(self, state: RunState) -> ev.HandoverSet | None:
        """Fix the point as soon as all ranks know."""
        index = handover_point(state, self._reports) if self._attempt_number == state.attempt_number else None
        if index is None:
            return None
        self._attempt_number = 0
        self._outbox.tell(HandoverAt(state.attempt_number, index))
        return ev.HandoverSet(state.attempt_number, index, self._number)
