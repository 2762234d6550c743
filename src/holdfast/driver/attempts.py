"""The life of each attempt: on which nodes its ranks are, and on which of them processes may still live."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from holdfast.core.run import commands as do
from holdfast.store.layout import RunLayout
from holdfast.wire import messages as wire

from .node_registry import NodeRegistry
from .outbox import Outbox
from .site import Site


class Attempts:
    def __init__(self, nodes: NodeRegistry, outbox: Outbox, layout: RunLayout, site: Site) -> None:
        self._nodes, self._outbox, self._layout, self._site = nodes, outbox, layout, site
        self._waiting: do.StartGroup | None = None  # for a node
        self._homes: dict[int, dict[int, str]] = {}  # generation -> rank -> node
        self._busy: set[str] = set()  # nodes on which processes of the last one may live
        self.is_being_read = False  # the logs of its ranks are: it is not gone before that

    @property
    def generation(self) -> int:
        """Of the last one that was started."""
        return max(self._homes, default=0)

    def start(self, command: do.StartGroup) -> bool:
        """As soon as there is a node; False if there is no longer room for it."""
        placed = self._nodes.place(command.world_size, command.leased)
        if sum(map(len, placed.values())) < command.world_size:
            self._waiting = None if self._site.grows else command
            return not self._site.grows
        self._waiting = None
        self._homes[command.generation] = {place.rank: node for node, places in placed.items() for place in places}
        self._busy = set(placed)
        for node, places in placed.items():
            what = (command.generation, command.world_size, command.base, command.resume, places)
            self._outbox.send(node, wire.StartWorkers(*what, address=self._nodes.address(node)))
        return True

    def node_ready(self) -> None:
        if self._waiting is not None:
            self.start(self._waiting)

    def stop(self, generation: int, graceful: bool) -> bool:
        """True if no node has heard of it yet, and so none will."""
        if self._waiting is not None or generation not in self._homes:
            self._waiting = None
            return True
        for node in sorted(self._busy):
            self._outbox.send(node, wire.StopWorkers(generation, graceful))
        return not self._busy and not self.is_being_read

    def node_lost(self, node: str) -> list[int]:
        """The ranks of the last attempt that were on it."""
        self._busy.discard(node)
        return [rank for rank, home in self._homes.get(self.generation, {}).items() if home == node]

    def take_gone(self, node: str, generation: int) -> bool:
        """A node has no process of the attempt any more; whether that was the last one."""
        if generation != self.generation:
            return False
        self._busy.discard(node)
        return not self._busy and not self.is_being_read

    def is_well_placed(self, generation: int) -> bool:
        """Whether it has only nodes that the next one would be on, too."""
        return set(self._homes.get(generation, {}).values()) <= set(self._nodes.usable())

    def node_of(self, generation: int, rank: int) -> str:
        return self._homes.get(generation, {}).get(rank, "")

    def ranks_on(self, generation: int, nodes: Iterable[str]) -> dict[str, list[int]]:
        homes = self._homes.get(generation, {})
        return {node: sorted(rank for rank, home in homes.items() if home == node) for node in nodes}

    def report_log(self, generation: int, rank: int) -> Path | None:
        """Where the rank logs its reports, if this machine has that."""
        if not self._site.is_remote:
            return self._layout.report_log(generation, rank)
        node = self.node_of(generation, rank)
        return RunLayout(self._layout.root / node).report_log(generation, rank) if self._site.keeps_files else None
