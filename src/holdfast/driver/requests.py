"""Requests of workers that the driver answers: barriers, broadcasts, the list of checkpoints, durability, datasets. A
request waits only while it can still be answered: a collective that a returned rank will never join is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle

from holdfast.core.run.retention import ranked
from holdfast.core.run.state import RankStatus, RunState, ValidationStatus
from holdfast.wire.messages import Asked
from holdfast.wire.worker_messages import Reply

from .effects import Effect, GiveShard, ListCheckpoints
from .outbox import Outbox

_COLLECTIVES = ("barrier", "broadcast", "gather")
_ABOUT_STORAGE = ("checkpoints", "durable")
_NOTHING = cloudpickle.dumps(None)


@dataclass
class _Waiting:
    asked: Asked
    validated: bool = False


class Requests:
    def __init__(
        self,
        outbox: Outbox,
        emit: Callable[[Effect], None],
        node_of: Callable[[int, int], str],
        validated: Mapping[str, Any],
    ) -> None:
        """``validated``: what validations found, by checkpoint."""
        self._outbox, self._emit, self._node_of, self._validated = outbox, emit, node_of, validated
        self._collective: dict[int, Asked] = {}  # by rank
        self._waiting: list[_Waiting] = []
        self._attempt_number = 0

    def add(self, asked: Asked) -> None:
        if asked.attempt_number != self._attempt_number:
            self._attempt_number = asked.attempt_number
            self._collective, self._waiting = {}, []
        kind = asked.request.kind
        if kind in _COLLECTIVES:
            self._collective[asked.rank] = asked
        elif kind in ("checkpoints", "checkpoints now", "durable", "shard"):
            body = cloudpickle.loads(asked.request.body) if kind == "checkpoints" else None
            self._waiting.append(_Waiting(asked, bool(body and body["validated"])))
        else:
            self.answer(asked, b"", f"the driver does not know the request {kind!r}")

    def settle(self, state: RunState, is_written: bool) -> None:
        """Answer the requests that can be answered now. ``is_written``: the journal has everything that led to this
        state. Before that, nothing counts as durable, and workers have not heard of it."""
        if self._attempt_number != state.attempt_number or state.attempt is None:
            return
        if self._collective:
            self._collective = {r: one for r, one in self._collective.items() if one.process == state.ranks[r].process}
        if self._collective:
            self._settle_collective(state)
        if self._waiting:
            there = [w for w in self._waiting if w.asked.process == state.ranks[w.asked.rank].process]
            self._waiting = [w for w in there if not self._settled(w, state, is_written)]

    def _settle_collective(self, state: RunState) -> None:
        returned = [r for r, rank in enumerate(state.ranks) if rank.status is RankStatus.RETURNED]
        kinds = {asked.request.kind for asked in self._collective.values()}
        error, body = "", _NOTHING
        if len(kinds) > 1:
            error = "some ranks called barrier() and others broadcast_from_rank_zero(): all must call the same one"
        elif returned:
            names = ", ".join(map(str, returned))
            error = f"rank {names} returned without calling {kinds.pop()}(): every rank must call it"
        elif len(self._collective) < len(state.ranks):
            return
        elif "broadcast" in kinds:
            body = self._collective[0].request.body
        elif "gather" in kinds:
            body = cloudpickle.dumps([self._collective[rank].request.body for rank in range(len(state.ranks))])
        for asked in self._collective.values():
            self.answer(asked, body, error)
        self._collective = {}

    def _settled(self, waiting: _Waiting, state: RunState, is_written: bool) -> bool:
        asked = waiting.asked
        if asked.request.kind == "shard":
            nodes = [self._node_of(asked.attempt_number, rank) for rank in range(len(state.ranks))]
            self._emit(GiveShard(asked, nodes))
            return True
        if _waits_for_storage(asked, state) or (asked.request.kind in _ABOUT_STORAGE and not is_written):
            return False
        if asked.request.kind == "checkpoints" and not state.complete(asked.request.index - 1):
            return False  # a rank that is behind may still save files, so ranks would get different answers
        if waiting.validated and any(c.validation is ValidationStatus.PENDING for c in state.checkpoints):
            return False
        if asked.request.kind in ("checkpoints", "checkpoints now"):
            listed, found = ranked(state.checkpoints, state.spec), self._validated
            self._emit(ListCheckpoints(asked, [(c.id, c.validation.value, found.get(c.id) or {}) for c in listed]))
        else:
            self.answer(asked, _NOTHING, _not_durable(asked, state))
        return True

    def answer(self, asked: Asked, body: bytes, error: str = "") -> None:
        self._outbox.tell(Reply(asked.attempt_number, asked.rank, asked.request.request, body, error, asked.process))


def _waits_for_storage(asked: Asked, state: RunState) -> bool:
    """Commits are in the order of the reports. A checkpoint that is lost is waited for no longer, whatever the earlier
    ones do."""
    if asked.request.kind == "checkpoints now":
        return False
    if asked.request.kind == "durable":
        return asked.request.index - 1 in state.pending
    return any(index < asked.request.index for index in state.pending)


def _not_durable(asked: Asked, state: RunState) -> str:
    index = asked.request.index - 1
    missed, given_up = (state.attempt.missed, state.attempt.given_up) if state.attempt is not None else (None, ())
    lost = missed is not None and (missed.attempt_number, missed.index) == (asked.attempt_number, index)
    return "the checkpoint could not be saved" if lost or index in given_up else ""
