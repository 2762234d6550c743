"""The ranks that wait to form their group again: what each has said of itself, and what all of them are answered."""

from __future__ import annotations

from typing import Any

import cloudpickle

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run.state import RankStanding
from holdfast.wire.messages import Asked
from holdfast.wire.worker_messages import Reply

from .outbox import Outbox


class Regroups:
    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._waiting: dict[int, tuple[Asked, dict[str, Any]]] = {}  # by rank

    def add(self, asked: Asked) -> ev.RegroupAsked:
        body = cloudpickle.loads(asked.request.body)
        self._waiting[asked.rank] = asked, body
        standing = RankStanding(body["steps"], asked.request.index, body["joins"])
        return ev.RegroupAsked(asked.attempt_number, asked.rank, standing)

    def answer(self, command: do.RegroupRanks) -> None:
        """The first replacement serves the store over which the new group forms."""
        endpoint = self._waiting[command.replaced[0]][1]["endpoint"]
        body = cloudpickle.dumps(
            {
                "number": command.number,
                "endpoint": endpoint,
                "source": command.source,
                "steps": list(command.steps),
                "reports": command.reports,
                "made": list(command.made),
                "replaced": list(command.replaced),
            }
        )
        for rank, (asked, _) in self._waiting.items():
            self._outbox.tell(Reply(command.attempt_number, rank, asked.request.request, body))
        self._waiting = {}
