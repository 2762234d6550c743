"""The nodes of a run and the engine's messages about them: joining, ready, draining, lost, cut off, and back.

A node that is cut off keeps running. Its messages come late or never. If they never come, its workers exit by
themselves, and the node is reported as lost only when the last of them must have exited.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

from holdfast.wire import messages as wire

from .clock import Clock
from .schedule import FENCE_S, Faults, Schedule
from .simulated_agents import Agents
from .simulated_attempt import Machine, Node, Worker
from .simulated_workers import Workers

AWAY_S = 40.0  # until another one replaces it
LOCAL = "local-0"


_FAULTS_OF_NODES = ("agent killed", "node lost", "node cut off", "node drained", "node joins")


class Cluster:
    """If the schedule has no nodes, this machine is the only one, with capacity for all."""

    def __init__(
        self, clock: Clock, rng: Random, faults: Faults, schedule: Schedule, workers: Workers, agents: Agents
    ) -> None:
        self.machines: dict[str, Machine] = {}
        self.kill_driver: Callable[[str], None]
        self._clock, self._rng, self._faults, self._schedule = clock, rng, faults, schedule
        self._workers, self._agents = workers, agents
        self._joined = len(schedule.nodes)
        self._where = 0
        self._is_disturbed = any(map(faults.is_planned, _FAULTS_OF_NODES))
        agents.replace = lambda node: self._replace(int(node.room), 0.0)

    @property
    def grows(self) -> bool:
        return bool(self._schedule.nodes)

    def is_reachable(self, worker: Worker) -> bool:
        """Whether the driver has received what the rank left on its machine."""
        return any(node.machine is worker.node.machine and node.is_known for node in self._agents.nodes.values())

    def driver_starts(self) -> None:
        """The driver's nodes start with it, some of them later. A node on which workers have outlived an earlier driver
        cannot be reached until they have exited."""
        self._agents.nodes.clear()
        if not self.grows:
            if self._schedule.spec.nodes_hold_files and self._rng.random() < 0.4:
                self._where = 1 - self._where  # the next driver is on the other one of two machines
            self._start_agent(Node(LOCAL, math.inf, self._machine(f"here-{self._where}")), 0.0)
        for number, (room, after_s) in enumerate(self._schedule.nodes):
            node = Node(f"node-{number}", room, self._machine(f"m-{number}"))
            there_at = max(self._clock.now + after_s, self._workers.outlived_on(node.machine.name))
            self._start_agent(node, there_at - self._clock.now)

    def _machine(self, name: str) -> Machine:
        return self.machines.setdefault(name, Machine(name))

    def _start_agent(self, node: Node, after_s: float) -> None:
        if self._faults.hit("node cannot talk to others"):
            self._faults.count("node cannot talk to others")
            node.is_mute = True
        if after_s <= 0:
            self._agents.say(node, wire.NodeJoining(node.id))
            self._clock.after(self._rng.random(), self._ready, node)
        else:
            self._clock.after(after_s, self._start_agent, node, 0.0)

    def _ready(self, node: Node) -> None:
        self._agents.say(node, self._agents.ready(node))

    def disturb(self, worker: Worker) -> None:
        """Do whatever may happen to a worker's node, or to another one."""
        if not self._is_disturbed:
            return
        if not self.grows:
            if self._faults.hit("agent killed"):
                self._faults.count("agent killed")
                self.lose(worker.node)
            return
        for kind, happen in (("node lost", self.lose), ("node cut off", self._cut_off), ("node drained", self._drain)):
            if self._faults.hit(kind):
                node = worker.node
                if self._rng.random() < 0.3:
                    node = self._rng.choice(list(self._agents.nodes.values()))
                if node.lives and not node.cut_until > self._clock.now:
                    self._faults.count(kind)
                    happen(node)
        if self._faults.hit("node joins"):
            self._faults.count("node joins")
            self._replace(self._rng.randint(1, 2), 0.0)

    def lose(self, node: Node) -> None:
        """Lose a node without notice. Its earlier messages arrive before the news."""
        if not node.lives:
            return
        node.lives = False
        there = self._workers.on(node)
        said = max([self._clock.now, *(worker.heard_until for worker in there)]) + self._rng.random()
        self._say_lost(node, said)
        for worker in there:
            self._workers.vanish(worker)
        if there and self._rng.random() < 0.5:
            self._workers.fail_of_peers(node)

    def _cut_off(self, node: Node) -> None:
        if self._faults.hit("driver killed while a node is cut off"):
            self._clock.after(self._rng.random() * FENCE_S, self.kill_driver, "driver killed while a node is cut off")
        if self._rng.random() < 0.5:
            node.cut_until = self._clock.now + self._rng.random() * FENCE_S
            return
        node.cut_until = math.inf
        for worker in self._workers.on(node):
            worker.is_silent = worker.is_silent or worker.lives
            self._clock.after(self._rng.random() * FENCE_S, self._workers.vanish, worker)
        self._clock.after(FENCE_S, self._end_fenced, node)

    def _end_fenced(self, node: Node) -> None:
        if node.lives:
            node.lives = False
            for worker in self._workers.on(node):
                self._workers.vanish(worker)
            self._say_lost(node, self._clock.now)

    def _drain(self, node: Node) -> None:
        deadline_s = self._rng.choice((1.0, 8.0, 25.0))
        if not node.draining:
            node.draining = True
            self._clock.after(self._rng.random() * 0.2, self._agents.say, node, wire.NodeDraining(node.id, deadline_s))
            self._clock.after(deadline_s, self.lose, node)

    def _say_lost(self, node: Node, when: float) -> None:
        node.lost_at = when
        self._clock.at(when, self._tell_lost, node)
        if not self.grows:
            again = Node(LOCAL, math.inf, node.machine)
            self._clock.at(when + self._rng.random(), self._start_agent, again, 0.0)
            return
        self._agents.lose(node.machine)
        came_back = self._rng.random() < 0.5
        self._replace(int(node.room), when + 0.1 - self._clock.now, node if came_back else None)

    def _tell_lost(self, node: Node) -> None:
        node.is_known = False
        if self._agents.nodes.get(node.id) is node:
            del self._agents.nodes[node.id]
        self._agents.say(node, wire.NodeLost(node.id))

    def _replace(self, room: int, after_s: float, node: Node | None = None) -> None:
        id, machine = (node.id, node.machine.name) if node is not None else (f"node-{self._joined}", "")
        if node is None:
            self._joined += 1
        again = Node(id, room, self._machine(machine or f"m-{id}"))
        self._clock.after(after_s + self._rng.random() * AWAY_S, self._start_agent, again, 0.0)
