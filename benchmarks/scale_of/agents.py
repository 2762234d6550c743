"""Stand-ins for the agents of a large run: one process, one socket an agent, the product's own end of the line.

No worker runs. Each agent says what its eight workers would have made it say, and does what it is told, and the script
below it goes through the scenes of a run: training, a checkpoint, a kill, a lost rack, the end. It writes down when
what was told arrived where. Times are those of the machine's clock, so that the driver's can be compared with them.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.node.driver_connection import DriverConnection, RunConnection
from holdfast.store import metrics
from holdfast.store.layout import RunLayout
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import CheckpointCommitted, Report

CONTENT = b"weights"
SETTLES_WITHIN_S = 120.0


class CountingConnection(DriverConnection):
    world: World

    def say(self, message: wire.Message) -> None:
        self.world.said += isinstance(message, wire.Reports | wire.NodeNews)
        super().say(message)


class StandIn:
    """One agent."""

    def __init__(self, world: World, driver: socket.socket) -> None:
        self._world = world
        self.line = CountingConnection(driver, world.selector, self._obey)
        self.line.world = world
        self._run = RunConnection(self.line, None)
        self.node, self.attempt_number, self.ranks, self.reports = "", 0, [], 0
        self.stopped_at = 0.0

    def say(self, message: Any) -> None:
        self._run.say(message)

    def _obey(self, order: Any) -> None:
        world = self._world
        match order:
            case wire.Configure():
                self.node, world.layout = order.node_id, RunLayout(Path(order.run_dir))
                self.say(wire.NodeReady(self.node, os.getpid(), 1))
            case wire.StartWorkers(attempt_number=attempt_number, places=places):
                self.attempt_number, self.ranks, self.reports = attempt_number, [place.rank for place in places], 0
                world.begins(attempt_number, order.world_size)
                for rank in self.ranks:
                    self.say(wire.WorkerStarted(attempt_number, rank, os.getpid(), ""))
                    self.say(wire.WorkerIsReady(attempt_number, rank))
            case wire.StopWorkers(attempt_number):
                if self.ranks:
                    self.stopped_at = time.time()
                self.ranks = []
                self.say(wire.WorkersGone(attempt_number))
            case wire.Seal(attempt_number, ranks, index):
                files = {rank: [(f"shard-{rank}", len(CONTENT), world.digest, "")] for rank in ranks}
                self.say(wire.NodeNews([wire.Sealed(attempt_number, rank, index, files[rank]) for rank in ranks]))
            case CheckpointCommitted():
                world.durable_at.setdefault(order.id, []).append(time.time())
            case wire.Probe():
                self.say(wire.Probed(True, []))
            case wire.OpenDoor(meeting):
                self.say(wire.DoorOpen(meeting, 1, b""))
            case wire.Meet(meeting):
                self.say(wire.Met(meeting))

    def report(self, staged: bool) -> None:
        """All its workers, one after the other, as those of one job do."""
        for rank in self.ranks:
            line = metrics.line(self.reports, time.time(), {"loss": 0.5, "step": self.reports})
            self._run.report(
                wire.Reports(self.attempt_number, rank, [Report(self.reports, line, staged)]), len(self.ranks)
            )
            self._world.reported += 1
        self.reports += 1

    def stage(self) -> None:
        """What the workers would have saved before that report."""
        assert self._world.layout is not None
        for rank in self.ranks:
            directory = self._world.layout.shard_dir(self.attempt_number, self.reports, rank)
            directory.mkdir(parents=True)
            (directory / f"shard-{rank}").write_bytes(CONTENT)


class World:
    def __init__(self, path: str, agents: int, digest: str) -> None:
        self.selector = selectors.DefaultSelector()
        self.agents: dict[socket.socket, StandIn] = {}
        self.digest = digest
        self.layout: RunLayout | None = None
        self.said = self.reported = 0
        self.attempt_number = self.world_size = 0
        self.durable_at: dict[str, list[float]] = {}
        self._expected = agents
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(path)
        self._door.listen(agents)
        self._door.setblocking(False)
        self.selector.register(self._door, selectors.EVENT_READ, lambda _: self._admit())

    def _admit(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                sock, _ = self._door.accept()
                self.agents[sock] = StandIn(self, sock)

    def begins(self, attempt_number: int, world_size: int) -> None:
        self.attempt_number, self.world_size = attempt_number, world_size

    @property
    def living(self) -> list[StandIn]:
        return [agent for agent in self.agents.values() if not agent.line.over]

    def pump(self, until: float) -> None:
        """Serve all sockets until then."""
        while True:
            for key, mask in self.selector.select(max(0.0, until - time.time())):
                key.data(mask)
            for sock in [sock for sock, agent in self.agents.items() if agent.line.over]:
                self.drop(sock)
            if time.time() >= until:
                return

    def drop(self, sock: socket.socket) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(sock)
        self.agents.pop(sock).line.close()

    def await_(self, holds: Any, what: str) -> float:
        deadline = time.time() + SETTLES_WITHIN_S
        while not holds():
            if time.time() > deadline:
                raise TimeoutError(f"{what} took longer than {SETTLES_WITHIN_S:.0f} s")
            self.pump(time.time() + 0.002)
        return time.time()

    def all_train(self, attempt_number: int) -> bool:
        """Whether every rank of the group that is due has been started."""
        ranks = sum(len(agent.ranks) for agent in self.agents.values() if agent.attempt_number == self.attempt_number)
        return self.attempt_number >= attempt_number and 0 < ranks == self.world_size

    def train(self, seconds: float, every_s: float = 1.0, staged: bool = False) -> dict[str, float]:
        """Every worker makes a report each ``every_s``; the agents take turns, so that the load is even."""
        agents, began, said, reported = self.living, time.time(), self.said, self.reported
        rounds = round(seconds / every_s) if every_s else 1
        for round_ in range(rounds):
            for place, agent in enumerate(agents):
                due = began + every_s * (round_ + place / len(agents))
                if due > time.time() or place % 16 == 0:
                    self.pump(max(due, time.time()))
                if not agent.line.over:
                    agent.report(staged)
        self.pump(began + rounds * every_s)
        took = time.time() - began
        return {
            "began": began,
            "ended": time.time(),
            "reports_per_s": (self.reported - reported) / took,
            "messages_per_s": (self.said - said) / took,
        }


def scenes(world: World, agents: int, seconds: float, rack: int) -> Iterator[tuple[str, Any]]:
    began = time.time()
    world.await_(lambda: len(world.agents) == agents and world.all_train(1), "the first attempt")
    yield "start_s", time.time() - began
    between = min(2.0, seconds)
    world.train(between)
    yield "training", world.train(seconds)
    for place, agent in enumerate(world.living):
        agent.stage()
        if place % 16 == 0:  # an agent that is silent for long counts as lost
            world.pump(time.time())
    world.train(0.0, every_s=0.0, staged=True)
    staged = time.time()
    told = world.await_(lambda: any(len(at) == agents for at in world.durable_at.values()), "a commit")
    first = min(min(at) for at in world.durable_at.values())
    yield "commit_s", first - staged
    yield "commit", {"staged": staged, "durable": first}
    yield "commit_told_s", told - staged
    world.train(between)
    victim = world.living[agents // 2]
    killed = time.time()
    victim.say(wire.WorkerHasFailed(victim.attempt_number, victim.ranks[0], None, None, 9, True, False, []))
    world.await_(lambda: all(not agent.ranks or agent.attempt_number > 1 for agent in world.living), "a stop")
    yield "kill_told_s", max(agent.stopped_at for agent in world.living) - killed
    world.await_(lambda: world.all_train(2), "the second attempt")
    yield "kill_recovered_s", time.time() - killed
    world.train(between)
    lost = time.time()
    for sock in list(world.agents)[:rack]:
        world.drop(sock)
    world.await_(lambda: world.all_train(3), "the third attempt")
    yield "rack_recovered_s", time.time() - lost
    yield "rack_world_size", world.world_size
    world.train(between)
    returned = time.time()
    for agent in world.living:
        for rank in agent.ranks:
            agent.say(wire.WorkerHasReturned(agent.attempt_number, rank, b"\x80\x04N."))
    world.await_(lambda: not world.agents, "the end")
    yield "end_s", time.time() - returned
    yield "attempts", world.attempt_number


def main() -> None:
    path, agents, seconds, rack, digest, out = sys.argv[1:7]
    world = World(path, int(agents), digest)
    print("listening", flush=True)
    found = dict(scenes(world, int(agents), float(seconds), int(rack)))
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
