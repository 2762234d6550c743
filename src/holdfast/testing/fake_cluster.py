"""Nodes that come and go under the fake engine: lost, cut off, drained, resting, apart, and others in their place.

A node that is cut off lives on. Its words come late, or never; then its workers end by themselves, and only after the
last of them can have ended is the node said to be lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from random import Random

from holdfast.core.failures import Evidence
from holdfast.core.run import events as ev
from holdfast.core.run.state import HandoverReason, RunState

from .clock import Clock
from .fake_engine import FakeEngine, News
from .fake_group import Group, Node, Worker
from .schedule import FENCE_S, Faults, Schedule

AWAY_S = 40.0  # until another one takes its place


class FakeCluster:
    def __init__(self, clock: Clock, rng: Random, faults: Faults, schedule: Schedule, engine: FakeEngine) -> None:
        self.roster: dict[str, Node] = {}  # what the driver knows
        self.resting: set[str] = set()
        self.apart: set[str] = set()  # those that cannot talk to others
        self.least = 1
        self.tell: Callable[[News], None]
        self.kill_driver: Callable[[str], None]
        self._clock, self._rng, self._faults, self._schedule = clock, rng, faults, schedule
        self._engine = engine
        self._joined = len(schedule.nodes)

    def driver_starts(self, least: int) -> None:
        """Its nodes start with it, some of them later. One on which workers have outlived an earlier driver cannot be
        reached until they have ended."""
        self.least = least
        self.resting.clear()
        self.apart.clear()
        self.roster.clear()
        for number, (room, after_s) in enumerate(self._schedule.nodes):
            node = Node(f"node-{number}", room)
            there_at = max(self._clock.now + after_s, self._engine.outlived_on(node.id))
            if there_at > self._clock.now:
                self._clock.at(there_at, self._join, node)
            else:
                self.roster[node.id] = node
                self._meet(node)

    def slots(self) -> int:
        return sum(node.room for node in self._usable())

    def place(self, world_size: int, among: Collection[str] | None = None) -> list[Node] | None:
        """The node of each rank, unless there is too little room."""
        placed: list[Node] = []
        usable = [node for node in self._usable() if among is None or node.id in among]
        for node in sorted(usable, key=lambda n: n.room, reverse=True):
            placed += [node] * min(node.room, world_size - len(placed))
        return placed if len(placed) == world_size else None

    def _usable(self) -> list[Node]:
        fit = [node for node in self.roster.values() if not node.draining]
        good = [node for node in fit if node.id not in self.resting | self.apart]
        return good if sum(node.room for node in good) >= self.least else fit

    def rest(self, node: str, on: bool) -> None:
        self._faults.count("a node rested" if on else "a node came back from its rest")
        self.resting = self.resting | {node} if on else self.resting - {node}
        self.tell(self._room)

    def _room(self, _state: RunState) -> list[ev.Event]:
        return [ev.Capacity(self.slots())]

    def _join(self, node: Node) -> None:
        def hear(state: RunState) -> list[ev.Event]:
            self.roster[node.id] = node
            self._meet(node)
            if node.id in state.doubted:
                self._faults.count("a node came back while it was waited for")
            return [ev.NodeClear(node.id), *self._room(state)]

        self.tell(hear)

    def _meet(self, node: Node) -> None:
        """It is tried beside the training whether it can talk to the others."""

        def hear(state: RunState) -> list[ev.Event]:
            if self.roster.get(node.id) is not node:
                return []
            self._faults.count("node cannot talk to others")
            self.apart.add(node.id)
            group = self._engine.groups.get(state.generation)
            has_begun = any(rank.reports for rank in state.ranks)
            if group is None or not state.group_lives or has_begun or set(group.homes) <= set(self._usable()):
                return self._room(state)
            return [*self._room(state), ev.HandedOver(state.generation, HandoverReason.RESIZE)]

        if self._faults.hit("node cannot talk to others"):
            self._clock.after(self._rng.random() * 5.0, self.tell, hear)

    def disturb(self, worker: Worker) -> None:
        """Whatever may happen to a worker's node, or to another one."""
        for kind, happen in (("node lost", self._lose), ("node cut off", self._cut_off), ("node drained", self._drain)):
            if self._faults.hit(kind):
                node = worker.node
                if self._rng.random() < 0.3:
                    node = self._rng.choice(list(self.roster.values()))
                if node is not None and node.lives and not node.cut_until > self._clock.now:
                    self._faults.count(kind)
                    happen(node)
        if self._faults.hit("node joins"):
            self._faults.count("node joins")
            self._replace(self._rng.randint(1, 2), 0.0)

    def _lose(self, node: Node) -> None:
        """Without a word. What it said before arrives before the news."""
        if not node.lives:
            return
        node.lives = False
        there = self._workers_on(node)
        said = max([self._clock.now, *(worker.heard_until for worker in there)]) + self._rng.random()
        self._say_lost(node, said)
        for worker in there:
            self._engine.vanish(worker)
        if there and self._rng.random() < 0.5:
            self._engine.fail_of_peers(node)

    def _cut_off(self, node: Node) -> None:
        if self._faults.hit("driver killed while a node is cut off"):
            self._clock.after(self._rng.random() * FENCE_S, self.kill_driver, "driver killed while a node is cut off")
        if self._rng.random() < 0.5:
            node.cut_until = self._clock.now + self._rng.random() * FENCE_S
            return
        node.cut_until = math.inf
        self._gone_after(node, self._clock.now + FENCE_S)
        for worker in self._workers_on(node):
            worker.is_silent = worker.is_silent or worker.lives
            self._clock.after(self._rng.random() * FENCE_S, self._engine.vanish, worker)
        self._clock.after(FENCE_S, self._is_fenced, node)

    def _is_fenced(self, node: Node) -> None:
        if node.lives:
            node.lives = False
            self._say_lost(node, self._clock.now)

    def _drain(self, node: Node) -> None:
        deadline_s = self._rng.choice((1.0, 8.0, 25.0))

        def hear(state: RunState) -> list[ev.Event]:
            if node.id not in self.roster:
                return []
            node.draining = True
            ranks = tuple(self._ranks_on(node, state.generation))
            return [ev.NodeDrains(node.id, deadline_s, ranks), *self._room(state)]

        if not node.draining:
            self._clock.after(self._rng.random() * 0.2, self.tell, hear)
            self._clock.after(deadline_s, self._lose, node)

    def _say_lost(self, node: Node, when: float) -> None:
        self._gone_after(node, when)
        self._engine.depot.lose(node)
        self._clock.at(when, self.tell, lambda state: self._hear_lost(node, state))
        self._replace(node.room, when + 0.1 - self._clock.now, node.id if self._rng.random() < 0.5 else None)

    def _hear_lost(self, node: Node, state: RunState) -> list[ev.Event]:
        heard: list[ev.Event] = []
        self.roster.pop(node.id, None)
        self.apart.discard(node.id)
        ranks = self._ranks_on(node, state.generation)
        if ranks and state.minds_lost_nodes:
            evidence = Evidence(node_lost=True, preempted=node.draining, message=node.id)
            at = state.base + state.ranks[ranks[0]].reports
            heard.append(ev.WorkerFailed(state.generation, ranks[0], evidence, node.id, at))
        for pending in state.unsaved if state.spec.remote else ():
            homes = self._engine.groups[pending.generation].homes
            if not pending.is_uploaded and any(homes[rank] is node for rank in pending.staged):
                heard.append(ev.StagedLost(pending.id, f"{node.id} was lost"))
        return [*heard, *self._room(state)]

    def _gone_after(self, node: Node, when: float) -> None:
        """No group that has workers there is known to be gone before that."""
        node.lost_at = max(node.lost_at, when)
        group = self._engine.group
        if group is not None and node in group.homes:
            group.heard_until = max(group.heard_until, when)

    def _replace(self, room: int, after_s: float, id: str | None = None) -> None:
        if id is None:
            id = f"node-{self._joined}"
            self._joined += 1
        self._clock.after(after_s + self._rng.random() * AWAY_S, self._join, Node(id, room))

    def _workers_on(self, node: Node) -> list[Worker]:
        group = self._engine.group
        return [] if group is None else [worker for worker in group.workers if worker.node is node]

    def _ranks_on(self, node: Node, generation: int) -> list[int]:
        group: Group | None = self._engine.groups.get(generation)
        return [] if group is None else [rank for rank, home in enumerate(group.homes) if home is node]
