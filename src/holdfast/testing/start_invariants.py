"""Checks how a driver interprets what it finds and where it places workers. The judge goes by what really happened, not
by the journal."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import step
from holdfast.core.run.state import Durable
from holdfast.wire import messages as wire

from .fates import expect
from .simulated_attempt import Node
from .simulated_storage import SimulatedStorage


class StartJudge:
    def __init__(self, storage: SimulatedStorage, is_remote: bool, nodes: Mapping[str, Node]) -> None:
        self._storage, self._is_remote, self._nodes = storage, is_remote, nodes
        self._deleted: set[str] = set()
        self._draining: set[str] = set()  # nodes that the driver knows will be removed
        self._last = math.inf  # the only attempt that may start after a stop was requested

    def stepped(self, commands: Iterable[do.Command]) -> None:
        for command in commands:
            if type(command) is do.Delete:
                self._deleted.add(command.id)

    def took_stock(self, before: Durable, found: list[ev.Event]) -> None:
        """A driver has read the content of storage. No node has sent anything yet."""
        self._draining.clear()
        self._last = math.inf
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
        if isinstance(message, wire.StartWorkers) and not message.joins:  # a rank that will move may be replaced first
            expect(node not in self._draining, "no worker starts where it cannot stay", f"{message} to {node}")
            room = self._nodes[node].room if node in self._nodes else math.inf
            expect(len(message.places) <= room, "5 no node has more workers than fit", f"{message} to {node}")
            expect(message.attempt_number <= self._last, "9 a run that is asked to stop does", f"{message} to {node}")

    def hears(self, items: Sequence[Any], attempt_number: int) -> None:
        """``attempt_number``: the last attempt that was decided before."""
        if items and type(items[0]) is ev.StopAsked:
            self._last = min(self._last, attempt_number)

    def heard(self, items: Iterable[Any]) -> None:
        """Call this after everything that followed from the input was carried out."""
        for item in items:
            if type(item) is tuple:
                kind = type(item[1])
                if kind is wire.NodeDraining:
                    self._draining.add(item[0])
                elif kind in (wire.NodeReady, wire.NodeLost):
                    self._draining.discard(item[0])
