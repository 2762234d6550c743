"""The driver of a large run: the product's own, in a process of its own, with an engine whose agents are stand-ins."""

from __future__ import annotations

import json
import math
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from holdfast import train
from holdfast.core.run import step as core
from holdfast.engine.agent_link import Link
from holdfast.engine.engine_interface import Inbox
from holdfast.engine.local.agent_process import LocalNode
from holdfast.engine.local.local_cluster import ClusterSession, LocalCluster
from holdfast.engine.node_member import AgentHandle, Member
from holdfast.wire import messages as wire

WORKERS = 8  # of an agent


class StandInAgent:
    def __init__(self, node: LocalNode, configure: wire.Configure, path: str) -> None:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(path)
        self._link = Link(sock, configure.node_timeout_s)
        self._link.send(msgspec.structs.replace(configure, node_id=node.id))

    def serve(self, inbox: Inbox, deliver: Callable[[wire.Message], None]) -> None:
        self._link.converse(inbox, deliver)

    def send(self, message: wire.Message) -> None:
        self._link.send(message)

    def shut_down(self) -> None:
        self._link.hang_up()

    kill = shut_down

    def await_end(self, is_lost: Callable[[], bool]) -> None:
        self._link.close()


class StandInMember(Member):
    def __init__(self, path: str, *where: Any) -> None:
        self._path = path
        super().__init__(*where)

    def _start_agent(self) -> AgentHandle:
        return StandInAgent(self._node, self._configure, self._path)


class StandInSession(ClusterSession):
    path = ""

    def add(self, node: LocalNode) -> None:
        member = StandInMember(self.path, node, self._configure, self._inbox, self._stays)
        self._members[node.id] = member
        self._all.append(member)


class StandIns(LocalCluster):
    """As many nodes as there are agents. A node that is lost stays away."""

    def __init__(self, path: str, agents: int) -> None:
        super().__init__()
        self._path, self._agents = path, agents
        self.opened_at = math.nan

    def open(self, configure: wire.Configure, inbox: Inbox) -> ClusterSession:
        self.opened_at = time.time()
        session = StandInSession(configure, inbox, lambda _id: False, lambda _session: None)
        session.path = self._path
        for number in range(self._agents):
            session.add(LocalNode(f"node-{number:04d}", float(WORKERS)))
        return session


class Gauge:
    """What the process has used, every tenth of a second, and how long each turn of the loop took."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, float, int]] = []  # time, CPU seconds, threads
        self.turns: list[tuple[float, float]] = []  # when, and for how long
        self.decisions: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        self._time_turns()
        self._time_decisions()

    def _sample(self) -> None:
        while not self._over.wait(0.1):
            self.samples.append((time.time(), time.process_time(), threading.active_count()))

    def _time_turns(self) -> None:
        from holdfast.driver.runtime import Driver

        take_in = Driver.take_in

        def timed(driver: Driver, items: Any) -> None:
            began = time.perf_counter()
            take_in(driver, items)
            self.turns.append((time.time(), time.perf_counter() - began))

        Driver.take_in = timed  # type: ignore[method-assign]

    def _time_decisions(self) -> None:
        """What the core takes to decide on an event, in CPU time: others may use the same core."""
        step = core.step

        def timed(*situation: Any) -> Any:
            began = time.thread_time()
            decided = step(*situation)
            self.decisions.append(time.thread_time() - began)
            return decided

        core.step = timed

    def close(self) -> dict[str, Any]:
        self._over.set()
        self._thread.join()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        p99 = sorted(self.decisions)[int(0.99 * len(self.decisions))]
        return {"samples": self.samples, "turns": self.turns, "peak_mb": peak, "decision_p99_s": p99}


def main() -> None:
    path, agents, storage, out = sys.argv[1:5]
    workers = WORKERS * int(agents)
    engine = StandIns(path, int(agents))
    gauge = Gauge()
    began = time.time()
    trainer = train.DataParallelTrainer(
        print,
        scaling_config=train.ScalingConfig(num_workers=(workers // 2, workers)),
        run_config=train.RunConfig(
            name="scale",
            storage_path=storage,
            engine=engine,
            failure_config=train.FailureConfig(max_failures=-1),
            checkpoint_config=train.CheckpointConfig(num_to_keep=2),
        ),
    )
    trainer.fit()
    measured = gauge.close()
    Path(out).write_text(json.dumps({"began": began, "opened": engine.opened_at, **measured}))


if __name__ == "__main__":
    main()
