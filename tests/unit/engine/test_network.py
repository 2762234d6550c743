"""A node across a network that is cut off: each side knows when the other has given it up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.engine.local.agent_process import Network
from holdfast.engine.local.local_cluster import LocalCluster
from holdfast.node.handshake import AgentListener
from holdfast.testing.engine_runs import PATIENCE_S, Watcher, below, configure, is_gone, wait_until
from holdfast.wire import messages as wire
from support.engine import dummies
from support.engine.two_machines import Cable
from support.repository import SUPPORT

TIMEOUT_S = 3.0
OTHER_DRIVER = SUPPORT / "engine" / "other_driver.py"


def test_a_node_across_a_network_works_like_any_other(cable: Cable, tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        node = cluster.add_node(network=cable.network)
        run = Watcher(cluster, at_work(tmp_path))
        ready = run.take(wire.NodeReady, node)
        assert ready.address == cable.node
        (worker,) = run.start(node)
        assert namespace(worker) == namespace(ready.pid) != namespace(os.getpid())
        run.session.close()
        assert is_gone(worker)
        assert not run.taken(wire.NodeLost)


def at_work(tmp_path: Path) -> wire.Configure:
    return configure(tmp_path, dummies.wait_for_ever, node_timeout_s=TIMEOUT_S)


def namespace(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/net")


@pytest.mark.parametrize("one_way", [False, True])
def test_a_node_that_is_cut_off_ends_its_workers_before_it_counts_as_lost(
    cable: Cable, tmp_path: Path, one_way: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    with LocalCluster() as cluster:
        node = cluster.add_node(network=cable.network)
        run = Watcher(cluster, at_work(tmp_path))
        agent = run.take(wire.NodeReady, node).pid
        (worker,) = run.start(node)
        (cable.silence_node if one_way else cable.cut)()
        wait_until(lambda: is_gone(worker), "the worker's end")
        assert not run.taken(wire.NodeLost), "it was ended by its own agent, not by the driver"
        run.take(wire.NodeLost, node)
        assert is_gone(agent)
        assert f"{node} has been cut off from its driver" in capfd.readouterr().err
        run.session.close()


def test_a_node_that_was_cut_off_comes_back_when_the_cable_is_fixed(cable: Cable, tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        node = cluster.add_node(network=cable.network)
        run = Watcher(cluster, at_work(tmp_path))
        run.take(wire.NodeReady, node)
        (old,) = run.start(node)
        cable.cut()
        run.take(wire.NodeLost, node)
        assert is_gone(old)
        cable.fix()
        run.take(wire.NodeReady, node)
        run.start(node, attempt_number=2)
        run.session.close()


def test_an_agent_that_is_cut_off_and_cannot_end_its_workers_counts_as_lost_when_they_are_gone(
    cable: Cable, tmp_path: Path
) -> None:
    with LocalCluster() as cluster:
        node = cluster.add_node(network=cable.network)
        run = Watcher(cluster, at_work(tmp_path))
        agent = run.take(wire.NodeReady, node).pid
        (worker,) = run.start(node)
        os.kill(agent, signal.SIGSTOP)
        cable.cut()
        run.take(wire.NodeLost, node)
        assert is_gone(worker)
        run.session.close()


def test_a_command_that_is_not_there_is_told(tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        cluster.add_node(network=Network(("no-such-command",), "127.0.0.1", "127.0.0.1"))
        run = Watcher(cluster, at_work(tmp_path))
        with pytest.raises(FileNotFoundError, match="no-such-command"):
            run.take(wire.NodeReady)
        run.session.close()


def test_a_short_cut_costs_nothing(cable: Cable, tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        node = cluster.add_node(network=cable.network)
        run = Watcher(cluster, configure(tmp_path, dummies.wait_for_ever, node_timeout_s=20.0))
        run.take(wire.NodeReady, node)
        (worker,) = run.start(node)
        cable.cut()
        time.sleep(2.0)  # as long as the cut lasts
        cable.fix()
        run.session.send(node, wire.DumpStacks(1))
        assert "wait_for_ever" in run.take(wire.Stacks, node).texts[0]
        assert not is_gone(worker)
        assert not run.taken(wire.NodeLost)
        run.session.close()


def test_a_killed_agent_across_a_network_is_found_at_once_with_all_below_it(cable: Cable, tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        node = cluster.add_node(network=cable.network)
        run = Watcher(cluster, configure(tmp_path, dummies.wait_for_ever, node_timeout_s=PATIENCE_S * 2))
        agent = run.take(wire.NodeReady, node).pid
        (worker,) = run.start(node)
        os.kill(agent, signal.SIGKILL)
        run.take(wire.NodeLost, node)  # well before the time-out
        assert is_gone(worker)
        run.session.close()


def test_a_removed_node_is_gone_though_its_cable_is_cut(cable: Cable, tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        node = cluster.add_node(network=cable.network)
        run = Watcher(cluster, configure(tmp_path, dummies.wait_for_ever, node_timeout_s=PATIENCE_S * 2))
        agent = run.take(wire.NodeReady, node).pid
        (worker,) = run.start(node)
        tree = [agent, worker, *below(agent)]
        cable.cut()
        cluster.remove_node(node)
        assert all(is_gone(pid) for pid in tree)
        run.take(wire.NodeLost, node)
        run.session.close()


@pytest.mark.parametrize("is_cut", [False, True])
def test_nothing_outlives_a_driver_that_is_killed(cable: Cable, tmp_path: Path, is_cut: bool) -> None:
    told = {"command": cable.network.command, "driver": cable.driver, "node": cable.node, "timeout_s": TIMEOUT_S}
    driver = subprocess.Popen(
        [sys.executable, str(OTHER_DRIVER), str(tmp_path), json.dumps(told)], stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout is not None
    with driver.stdout:
        agent, worker = (int(pid) for pid in driver.stdout.readline().split())
        if is_cut:
            cable.cut()
        driver.kill()
        driver.wait(PATIENCE_S)
        wait_until(lambda: is_gone(agent) and is_gone(worker), "the end of the agent and of its worker")


def test_a_stopped_agent_across_a_network_keeps_no_worker_when_its_driver_is_killed(
    cable: Cable, tmp_path: Path
) -> None:
    """Nothing tells the agent, which could not listen, so its zygote must know. The next agent of the run on that node
    is ready when the last worker is gone, and says so."""
    told = {"command": cable.network.command, "driver": cable.driver, "node": cable.node, "timeout_s": TIMEOUT_S}
    driver = subprocess.Popen(
        [sys.executable, str(OTHER_DRIVER), str(tmp_path), json.dumps(told)], stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout is not None
    with driver.stdout:
        agent, worker = (int(pid) for pid in driver.stdout.readline().split())
        os.kill(agent, signal.SIGSTOP)
        driver.kill()
        driver.wait(PATIENCE_S)
    with LocalCluster() as cluster:
        node = cluster.add_node(network=cable.network)
        run = Watcher(cluster, configure(tmp_path, dummies.wait_for_ever, node_timeout_s=PATIENCE_S * 2))
        ready = run.take(wire.NodeReady, node)
        assert is_gone(worker)
        assert ready.clear
        assert not is_gone(agent)
        run.start(node)
        os.kill(agent, signal.SIGCONT)
        wait_until(lambda: is_gone(agent), "the end of the agent that continues")
        run.session.close()


def test_the_token_is_nowhere_that_others_can_read(
    cable: Cable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens: list[str] = []
    real = AgentListener.__init__

    def made(self: AgentListener, host: str) -> None:
        real(self, host)
        tokens.append(self.token.hex())

    monkeypatch.setattr(AgentListener, "__init__", made)
    with LocalCluster() as cluster:
        node = cluster.add_node(network=cable.network)
        run = Watcher(cluster, at_work(tmp_path))
        agent = run.take(wire.NodeReady, node).pid
        (worker,) = run.start(node)
        for pid in (agent, worker, *below(agent)):
            for name in ("cmdline", "environ"):
                assert tokens[0].encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
        run.session.close()
