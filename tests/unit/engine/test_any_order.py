"""Whatever happens to nodes, in whatever order: what a run hears of each of them makes sense, and is true."""

from __future__ import annotations

import contextlib
import os
import queue
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine.engine_interface import Inbox
from holdfast.engine.local.local_cluster import LocalCluster
from holdfast.testing.engine_runs import configure, is_gone, parent, wait_until
from holdfast.wire import messages as wire
from support.engine import dummies

STEPS = 25
# What may come after what. A node that is lost while it joins was never ready.
NEXT: dict[type | None, set[type]] = {
    None: {wire.NodeJoining},
    wire.NodeJoining: {wire.NodeReady, wire.NodeLost},
    wire.NodeReady: {wire.NodeDraining, wire.NodeLost},
    wire.NodeDraining: {wire.NodeDraining, wire.NodeLost},
    wire.NodeLost: {wire.NodeJoining},
}


class Judge:
    """A driver that starts a worker on each node that is ready, and checks all that it hears."""

    def __init__(self, cluster: LocalCluster, run_dir: Path) -> None:
        self._inbox: Inbox = queue.SimpleQueue()
        configuration = configure(run_dir, dummies.wait_for_ever, node_timeout_s=1.0, preemption_grace_s=0.3)
        self.session = cluster.open(configuration, self._inbox)
        self._attempt_number = 0
        self.last: dict[str, type] = {}
        self.agents: dict[str, int] = {}
        self.workers: dict[str, list[int]] = {}

    def look(self, within_s: float = 0.0) -> None:
        """Take in what has come, at least for so long."""
        deadline = time.monotonic() + within_s
        while True:
            try:
                item = self._inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return
            if isinstance(item, Exception):
                raise item
            self._judge(*item)

    def _judge(self, node: str, message: Any) -> None:
        if isinstance(message, wire.WorkerStarted):
            self.workers.setdefault(node, []).append(message.pid)
        if type(message) not in NEXT:
            assert self.last[node] in (wire.NodeReady, wire.NodeDraining), f"{message} of a node that is not there"
            return
        before = self.last.get(node)
        assert type(message) in NEXT[before], f"{node}: {message} after {before}"
        self.last[node] = type(message)
        if isinstance(message, wire.NodeReady):
            self.agents[node] = message.pid
            self.session.accept(node, message.pid)
            self._attempt_number += 1
            self.session.send(node, wire.StartWorkers(self._attempt_number, 1, 0, None, [wire.Place(0, 0, 1, 0)]))
        elif isinstance(message, wire.NodeLost):
            left = [pid for pid in (self.agents.pop(node, 0), *self.workers.pop(node, [])) if pid and not is_gone(pid)]
            assert not left, f"{node} counts as lost, and {left} live"


def strike(cluster: LocalCluster, judge: Judge, dice: random.Random) -> None:
    """One thing happens."""
    nodes = [node.id for node in cluster.nodes]
    workers = [pid for pids in judge.workers.values() for pid in pids]
    kind = dice.choice(["add", "add", "remove", "drain", "kill", "stop", "notice", "zygote", "worker"])
    with contextlib.suppress(OSError, ValueError, AssertionError):  # it is gone already
        if kind == "add" and len(nodes) < 5:
            cluster.add_node()
        elif kind == "remove" and nodes:
            cluster.remove_node(dice.choice(nodes))
        elif kind == "drain" and nodes:
            cluster.drain_node(dice.choice(nodes), dice.uniform(0.0, 0.5))
        elif kind in ("kill", "stop", "notice") and judge.agents:
            number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "notice": signal.SIGTERM}[kind]
            send(dice.choice(sorted(judge.agents.values())), "hf-agent", number)
        elif kind == "zygote" and workers:
            send(parent(dice.choice(workers)), "hf-zygote", signal.SIGKILL)
        elif kind == "worker" and workers:
            send(dice.choice(workers), "hf-worker", dice.choice([signal.SIGKILL, signal.SIGSTOP]))


def send(pid: int, name: str, number: int) -> None:
    """Unless the number is another's by now."""
    if Path(f"/proc/{pid}/comm").read_text().strip() == name:
        os.kill(pid, number)


@pytest.mark.parametrize("seed", range(3))
def test_any_order(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    with LocalCluster() as cluster:
        for _ in range(3):
            cluster.add_node()
        judge = Judge(cluster, tmp_path)
        for _ in range(STEPS):
            judge.look(dice.uniform(0.0, 0.4))
            strike(cluster, judge, dice)
        last = cluster.add_node()

        def is_at_work() -> bool:
            judge.look(0.05)
            return bool(judge.workers.get(last))

        wait_until(is_at_work, "work on a node that nothing happens to")
        seen = [*judge.agents.values(), *(pid for pids in judge.workers.values() for pid in pids)]
        judge.session.close()
    assert all(is_gone(pid) for pid in seen)
