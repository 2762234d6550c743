"""The ranks that wait to form a group again: how far each came, and the answer for all of them."""

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

    def add(self, asked: Asked) -> list[ev.Event]:
        body = cloudpickle.loads(asked.request.body)
        standing = RankStanding(body["steps"], asked.request.index, body["joins"])
        self._waiting[asked.rank] = asked, body
        return [ev.RegroupAsked(asked.attempt_number, asked.rank, standing, asked.process)]

    def answer(self, command: do.RegroupRanks, snapshot: tuple[int, int] | None) -> None:
        """The first replacement serves the store over which the new group forms. ``snapshot``: the newest that is
        complete."""
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
                "snapshot": snapshot,
            }
        )
        for rank, (asked, _) in self._waiting.items():
            self._outbox.tell(Reply(command.attempt_number, rank, asked.request.request, body, "", asked.process))
        self._waiting = {}
