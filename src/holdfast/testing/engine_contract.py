"""What every engine promises its driver, whatever its nodes are. An engine's tests subclass one of these classes.

``EngineContract`` is for any engine, ``ClusterContract`` for engines whose nodes join and leave. The fixture ``lab``
gives the engine with ``nodes`` nodes, each with capacity for one worker.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from holdfast.engine.engine_interface import Engine
from holdfast.testing.engine_runs import (
    Watcher,
    below,
    configure,
    is_gone,
    wait_for_ever,
    wait_until,
    wait_with_children,
)
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import Place


class Lab(Protocol):
    engine: Engine

    def kill(self, node: str) -> None:
        """Kill the node like a power cut."""

    def drain(self, node: str, deadline_s: float) -> None:
        """Announce that the node will be removed."""


class EngineContract:
    """The tests that every engine must pass. Derive ``TestMyEngine`` from it, and override the fixture ``lab``."""

    nodes = 1

    @pytest.fixture
    def lab(self) -> Iterator[Lab]:
        raise NotImplementedError

    @pytest.fixture
    def runs(self) -> Iterator[list[Watcher]]:
        """Opens runs, and closes them in any case."""
        opened: list[Watcher] = []
        yield opened
        for run in opened:
            run.session.close()

    def open(self, lab: Lab, runs: list[Watcher], home: Path, work: Any = wait_for_ever) -> tuple[Watcher, Any]:
        """Open the run. Returns it, and its agents' processes by node."""
        run = Watcher(lab.engine, configure(home, work))
        runs.append(run)
        ready = [run.take(wire.NodeReady) for _ in range(self.nodes)]
        return run, {message.node_id: message.pid for message in ready}

    def test_a_node_joins_before_it_is_ready_and_nothing_is_left_after_the_end(
        self, lab: Lab, runs: list[Watcher], tmp_path: Path
    ) -> None:
        run, agents = self.open(lab, runs, tmp_path, wait_with_children)
        assert len(agents) == self.nodes
        for node in agents:
            kinds = [type(message) for where, message in run.seen if where == node]
            assert kinds.index(wire.NodeJoining) < kinds.index(wire.NodeReady)
        (worker,) = run.start(next(iter(agents)))
        wait_until(lambda: len(below(worker)) == 2, "the worker has its children")
        tree = [*agents.values(), worker, *below(worker)]
        run.session.close()
        assert all(is_gone(pid) for pid in tree), "gone when close returns"

    def test_a_killed_agent_is_replaced_when_its_workers_are_dead(
        self, lab: Lab, runs: list[Watcher], tmp_path: Path
    ) -> None:
        run, agents = self.open(lab, runs, tmp_path)
        node, agent = next(iter(agents.items()))
        (worker,) = run.start(node)
        os.kill(agent, signal.SIGKILL)
        run.take(wire.NodeLost, node)
        assert is_gone(worker)
        run.take(wire.NodeJoining, node)
        assert run.take(wire.NodeReady, node).pid != agent
        assert not is_gone(run.start(node, attempt_number=2)[0])

    def test_an_order_meant_for_the_old_agent_never_reaches_the_new_one(
        self, lab: Lab, runs: list[Watcher], tmp_path: Path
    ) -> None:
        run, agents = self.open(lab, runs, tmp_path)
        node, old = next(iter(agents.items()))
        os.kill(old, signal.SIGKILL)
        wait_until(lambda: len(run.taken(wire.NodeReady, node)) == 2, "the next is ready")
        run.session.send(node, wire.StartWorkers(1, 1, 0, None, [Place(0, 0, 1, 0)]))
        run.session.accept(node, run.taken(wire.NodeReady, node)[-1].pid)
        run.session.send(node, wire.StopWorkers(2, False))
        run.take(wire.WorkersGone, node, attempt_number=2)
        assert not run.taken(wire.WorkerStarted)


class ClusterContract(EngineContract):
    """The tests for an engine whose nodes join and leave. The lab can kill a node, and can announce that one will be
    removed.
    """

    nodes = 2

    def test_a_killed_node_is_lost_with_all_below_it_and_the_other_stays(
        self, lab: Lab, runs: list[Watcher], tmp_path: Path
    ) -> None:
        run, agents = self.open(lab, runs, tmp_path, wait_with_children)
        a, b = agents
        (lost,), (kept,) = run.start(a), run.start(b)
        wait_until(lambda: len(below(lost)) == 2, "the worker has its children")
        tree = [agents[a], lost, *below(lost)]
        lab.kill(a)
        run.take(wire.NodeLost, a)
        assert all(is_gone(pid) for pid in tree)
        assert not is_gone(kept)
        run.session.send(a, wire.Shutdown())  # no agent receives it, which is not an error

    def test_a_drained_node_is_told_of_with_the_time_that_is_left(
        self, lab: Lab, runs: list[Watcher], tmp_path: Path
    ) -> None:
        run, agents = self.open(lab, runs, tmp_path)
        a, b = agents
        lab.drain(a, 600.0)
        notice = run.take(wire.NodeDraining, a)
        assert 300 < notice.deadline_s <= 600
        assert not run.taken(wire.NodeDraining, b)
        assert not run.taken(wire.NodeLost)
        assert not is_gone(agents[a])
