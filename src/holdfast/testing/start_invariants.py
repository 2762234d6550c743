"""What a driver makes of what it finds, and where it puts workers: judged by what has happened, not by the journal."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import step
from holdfast.core.run.state import Durable
from holdfast.wire import messages as wire

from .fates import expect
from .simulated_storage import SimulatedStorage


class StartJudge:
    def __init__(self, storage: SimulatedStorage, is_remote: bool) -> None:
        self._storage, self._is_remote = storage, is_remote
        self._deleted: set[str] = set()
        self._draining: set[str] = set()  # nodes that the driver knows to be taken away

    def stepped(self, commands: Iterable[do.Command]) -> None:
        self._deleted.update(command.id for command in commands if isinstance(command, do.Delete))

    def took_stock(self, before: Durable, found: list[ev.Event]) -> None:
        """A driver knows what is stored; no node has said anything yet."""
        self._draining.clear()
        stored = self._storage.manifests
        state = functools.reduce(step.replay, found, before)
        gone = [c.id for c in state.checkpoints if c.id not in stored]
        expect(not gone, "1 only what is stored is offered", f"{gone} have no manifest")
        if self._is_remote:
            again = [e.record.id for e in found if isinstance(e, ev.Committed) and e.record.id in self._deleted]
            expect(not again, "2 what was deleted stays deleted", f"{again} came back")
        else:
            left = sorted(before.damaged & stored.keys())
            expect(not left, "1 what was damaged is set aside", f"{left} were found damaged, and are still there")

    def sends(self, node: str, message: wire.Message) -> None:
        if isinstance(message, wire.StartWorkers):
            expect(node not in self._draining, "no worker starts where it cannot stay", f"{message} to {node}")

    def heard(self, items: Iterable[Any]) -> None:
        """After all that came of it was carried out."""
        for item in items:
            match item:
                case (str(node), wire.NodeDraining()):
                    self._draining.add(node)
                case (str(node), wire.NodeReady() | wire.NodeLost()):
                    self._draining.discard(node)
