"""One step in the making: the state that changes, and the commands that come of it."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from . import commands as do
from .state import Pending, Phase, RunState


class Turn:
    def __init__(self, state: RunState, now: float) -> None:
        self.state = state
        self.now = now
        self.commands: list[do.Command] = []

    def change(self, **fields: Any) -> None:
        self.state = structs.replace(self.state, **fields)

    def do(self, *commands: do.Command) -> None:
        self.commands.extend(commands)

    def jump(self, phase: Phase) -> None:
        """Where a durable event leads from any phase: a replay has not seen the volatile events in between."""
        self.change(phase=phase)

    def is_current(self, generation: int) -> bool:
        """Whether the group may still be heard: it is the newest one, and not yet known to be gone."""
        alive = self.state.phase in (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)
        return generation == self.state.generation and alive

    def set_rank(self, rank: int, **fields: Any) -> None:
        ranks = list(self.state.ranks)
        ranks[rank] = structs.replace(ranks[rank], **fields)
        self.change(ranks=tuple(ranks))

    def set_pending(self, index: int, pending: Pending | None) -> None:
        rest = {k: v for k, v in self.state.pending.items() if k != index}
        self.change(pending=rest if pending is None else dict(sorted({**rest, index: pending}.items())))
