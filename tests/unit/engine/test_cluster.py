"""Nodes that join, are killed, stop answering, are drained and removed, under runs that use them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine.local.local_cluster import LocalCluster
from holdfast.engine.local.local_engine import LocalEngine
from holdfast.errors import HoldfastError
from holdfast.testing.engine_runs import PATIENCE_S, Watcher, below, configure, is_gone, parent, wait_until
from holdfast.wire import messages as wire
from support.engine import dummies
from support.repository import SUPPORT

OTHER_DRIVER = SUPPORT / "engine" / "other_driver.py"


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


def open_run(cluster: LocalCluster, run_dir: Path, work: Any = dummies.wait_for_ever, **changes: Any) -> Watcher:
    return Watcher(cluster, configure(run_dir, work, **changes))


def test_nodes_have_names_and_resources(cluster: LocalCluster) -> None:
    first = cluster.add_node()
    second = cluster.add_node(2.5, 1, labels={"zone": "a"}, node_id="big")
    assert second == "big"
    assert [node.id for node in cluster.nodes] == [first, "big"]
    assert (cluster.nodes[1].cpus, cluster.nodes[1].gpus, cluster.nodes[1].labels) == (2.5, 1.0, {"zone": "a"})
    cluster.remove_node(first)
    assert cluster.add_node() != first
    assert "big" in repr(cluster)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c: c.add_node(0), "cpus above 0"),
        (lambda c: c.add_node(1, -1), "gpus of 0 or more"),
        (lambda c: c.add_node(node_id="../up"), "letters, digits"),
        (lambda c: c.add_node(node_id="there"), "remove it first"),
        (lambda c: c.remove_node("nowhere"), "has no node 'nowhere'. Its nodes: there"),
        (lambda c: c.drain_node("there", -1), "0 or more seconds"),
        (lambda c: c.drain_node("nowhere"), "no node 'nowhere'"),
    ],
)
def test_a_mistake_in_a_call_is_told(cluster: LocalCluster, call: Any, words: str) -> None:
    cluster.add_node(node_id="there")
    with pytest.raises(ValueError, match=words):
        call(cluster)


def test_each_node_of_a_run_has_an_agent_and_so_has_one_that_is_added(cluster: LocalCluster, tmp_path: Path) -> None:
    a = cluster.add_node(cpus=2, gpus=1, labels={"zone": "a"})
    b = cluster.add_node()
    run = open_run(cluster, tmp_path)
    ready = {message.node_id: message for message in (run.take(wire.NodeReady), run.take(wire.NodeReady))}
    assert (ready[a].cpus, ready[a].gpus, ready[a].labels, ready[a].address) == (2, 1, {"zone": "a"}, "127.0.0.1")
    joins = [node for node, message in run.seen if isinstance(message, wire.NodeJoining)]
    assert sorted(joins) == sorted([a, b])
    c = cluster.add_node()
    run.take(wire.NodeJoining, c)
    agent = run.take(wire.NodeReady, c).pid
    assert not is_gone(run.start(c)[0])
    run.session.close()
    assert is_gone(agent)


def test_a_removed_node_is_gone_with_all_below_it_and_is_not_replaced(cluster: LocalCluster, tmp_path: Path) -> None:
    a, b = cluster.add_node(), cluster.add_node()
    run = open_run(cluster, tmp_path, dummies.wait_with_children)
    ready = [run.take(wire.NodeReady) for _ in (a, b)]
    agents = {message.node_id: message.pid for message in ready}
    (lost,), (kept,) = run.start(a), run.start(b)
    wait_until(lambda: len(below(lost)) == 2, "the worker has its children")
    tree = [agents[a], lost, *below(lost), *below(agents[a])]
    cluster.remove_node(a)
    assert all(is_gone(pid) for pid in tree), "gone when remove_node returns"
    run.take(wire.NodeLost, a)
    assert not is_gone(kept)
    run.session.send(a, wire.Shutdown())  # nobody is there to hear it, and that is no error
    run.session.close()
    assert is_gone(kept)
    assert len(run.taken(wire.NodeJoining, a)) == 1


def test_a_killed_agent_is_replaced_when_its_workers_are_dead(cluster: LocalCluster, tmp_path: Path) -> None:
    node = cluster.add_node()
    run = open_run(cluster, tmp_path)
    agent = run.take(wire.NodeReady, node).pid
    (worker,) = run.start(node)
    os.kill(agent, signal.SIGKILL)
    run.take(wire.NodeLost, node)
    assert is_gone(worker)
    run.take(wire.NodeJoining, node)
    assert run.take(wire.NodeReady, node).pid != agent
    assert not is_gone(run.start(node, attempt_number=2)[0])
    run.session.close()


def test_an_order_meant_for_the_old_agent_never_reaches_the_new_one(cluster: LocalCluster, tmp_path: Path) -> None:
    node = cluster.add_node()
    run = open_run(cluster, tmp_path)
    old = run.take(wire.NodeReady, node).pid
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: len([m for _, m in _peek(run) if isinstance(m, wire.NodeReady)]) == 2, "the next is ready")
    places = [wire.Place(0, 0, 1, 0)]
    run.session.send(node, wire.StartWorkers(1, 1, 0, None, places))  # before the driver has heard of any of that
    new = run.taken(wire.NodeReady, node)[-1]
    run.session.accept(node, new.pid)
    run.session.send(node, wire.StopWorkers(2, False))
    run.take(wire.WorkersGone, node, attempt_number=2)
    assert not run.taken(wire.WorkerStarted)
    run.session.close()


def _peek(run: Watcher) -> list[tuple[str, Any]]:
    run.taken(wire.NodeLost)
    return run.seen


def _stop(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)


@pytest.mark.parametrize("whole_node", [False, True])
def test_an_agent_that_does_not_answer_is_lost(cluster: LocalCluster, tmp_path: Path, whole_node: bool) -> None:
    node = cluster.add_node()
    run = open_run(cluster, tmp_path, node_timeout_s=2.0)
    agent = run.take(wire.NodeReady, node).pid
    (worker,) = run.start(node)
    tree = [agent, *below(agent), worker]
    _stop(tree if whole_node else [agent])
    run.take(wire.NodeLost, node)
    assert all(is_gone(pid) for pid in tree)
    run.take(wire.NodeReady, node)
    run.session.close()


def test_a_driver_that_was_suspended_does_not_take_its_agents_for_dead(tmp_path: Path) -> None:
    driver = subprocess.Popen(
        [sys.executable, str(OTHER_DRIVER), str(tmp_path), json.dumps({"timeout_s": 2.0})],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdin is not None
    assert driver.stdout is not None
    with driver.stdin, driver.stdout:
        driver.stdout.readline()
        driver.send_signal(signal.SIGSTOP)
        time.sleep(5.0)  # the length of the suspension, longer than an agent may be silent
        driver.send_signal(signal.SIGCONT)
        print("look", file=driver.stdin, flush=True)
        assert driver.stdout.readline() == "0\n", "nodes were lost"
        print("end", file=driver.stdin, flush=True)
        assert driver.wait(PATIENCE_S) == 0


def test_agents_end_at_once_with_their_driver_though_they_may_take_long_to_drain(tmp_path: Path) -> None:
    driver = subprocess.Popen(
        [sys.executable, str(OTHER_DRIVER), str(tmp_path), json.dumps({"timeout_s": 600.0})],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdin is not None
    assert driver.stdout is not None
    with driver.stdin, driver.stdout:
        agent, worker = (int(pid) for pid in driver.stdout.readline().split())
        driver.kill()
        driver.wait(PATIENCE_S)
        wait_until(lambda: is_gone(agent) and is_gone(worker), "the end of the agent and of its worker")


def test_to_send_never_waits_for_an_agent_that_does_not_listen(cluster: LocalCluster, tmp_path: Path) -> None:
    node = cluster.add_node()
    run = open_run(cluster, tmp_path, node_timeout_s=2.0)
    _stop([run.take(wire.NodeReady, node).pid])
    for _ in range(8):
        run.session.send(node, wire.RunTask("task", bytes(8 << 20), None))
    assert not run.taken(wire.NodeLost), "it waited until the agent was lost"
    run.take(wire.NodeLost, node)
    run.session.close()


def test_a_drained_node_is_announced_and_removed_at_the_deadline(cluster: LocalCluster, tmp_path: Path) -> None:
    node = cluster.add_node()
    run = open_run(cluster, tmp_path)
    run.take(wire.NodeReady, node)
    (worker,) = run.start(node)
    cluster.drain_node(node, deadline_s=0.5)
    assert run.take(wire.NodeDraining, node).deadline_s == 0.5
    run.take(wire.NodeLost, node)
    assert is_gone(worker)
    assert cluster.nodes == ()
    run.session.close()
    assert len(run.taken(wire.NodeJoining)) == 1


def test_a_draining_node_gets_no_agent_any_more(cluster: LocalCluster, tmp_path: Path) -> None:
    a, b = cluster.add_node(), cluster.add_node()
    run = open_run(cluster, tmp_path)
    for _ in (a, b):
        run.take(wire.NodeReady)
    cluster.drain_node(a, deadline_s=PATIENCE_S)
    run.take(wire.NodeDraining, a)
    run.session.send(a, wire.Shutdown())
    run.take(wire.NodeLost, a)
    other = open_run(cluster, tmp_path / "other")
    assert other.take(wire.NodeReady).node_id == b
    assert {node for node, _ in other.seen} == {b}
    for session in (run.session, other.session):
        session.close()
    assert len(run.taken(wire.NodeJoining, a)) == 1


def test_a_node_that_drains_while_it_joins_says_so_when_it_is_ready(cluster: LocalCluster, tmp_path: Path) -> None:
    node = cluster.add_node()
    run = open_run(cluster, tmp_path)
    cluster.drain_node(node, deadline_s=PATIENCE_S)
    run.take(wire.NodeDraining, node)
    kinds = [type(message) for _, message in run.seen]
    assert kinds == [wire.NodeJoining, wire.NodeReady, wire.NodeDraining]
    run.session.close()


def test_a_sigterm_to_an_agent_is_a_notice_and_the_second_ends_it(cluster: LocalCluster, tmp_path: Path) -> None:
    node = cluster.add_node()
    run = open_run(cluster, tmp_path, preemption_grace_s=PATIENCE_S)
    agent = run.take(wire.NodeReady, node).pid
    (worker,) = run.start(node)
    os.kill(agent, signal.SIGTERM)
    os.kill(parent(worker), signal.SIGTERM)  # some systems tell every process of a machine that goes away
    assert run.take(wire.NodeDraining, node).deadline_s == PATIENCE_S
    run.session.send(node, wire.DumpStacks(1))
    assert "wait_for_ever" in run.take(wire.Stacks, node).texts[0], "it continues"
    os.kill(agent, signal.SIGTERM)
    run.take(wire.NodeLost, node)
    assert is_gone(worker)
    run.take(wire.NodeReady, node)  # the node is there all the same
    run.session.close()


def test_an_agent_that_was_told_of_its_end_goes_at_the_deadline(cluster: LocalCluster, tmp_path: Path) -> None:
    node = cluster.add_node()
    run = open_run(cluster, tmp_path, preemption_grace_s=0.3)
    os.kill(run.take(wire.NodeReady, node).pid, signal.SIGTERM)
    assert run.take(wire.NodeDraining, node).deadline_s == 0.3
    run.take(wire.NodeLost, node)
    run.session.close()


def test_two_runs_at_a_time(cluster: LocalCluster, tmp_path: Path) -> None:
    a, b = cluster.add_node(), cluster.add_node()
    first, second = (open_run(cluster, tmp_path / name) for name in ("first", "second"))
    for run in (first, second):
        for _ in (a, b):
            run.take(wire.NodeReady)
    workers = [run.start(node)[0] for run in (first, second) for node in (a, b)]
    cluster.remove_node(a)
    assert [is_gone(pid) for pid in workers] == [True, False, True, False]
    first.take(wire.NodeLost, a)
    second.take(wire.NodeLost, a)
    first.session.close()
    assert [is_gone(pid) for pid in workers] == [True, True, True, False]
    c = cluster.add_node()
    second.take(wire.NodeReady, c)
    second.session.close()
    assert not first.taken(wire.NodeReady, c)


def test_a_cluster_that_is_closed_under_a_run_tells_it(tmp_path: Path) -> None:
    cluster = LocalCluster()
    node = cluster.add_node()
    cluster.add_node()
    run = open_run(cluster, tmp_path)
    run.take(wire.NodeReady, node)
    (worker,) = run.start(node)
    cluster.drain_node(node, PATIENCE_S)
    cluster.close()
    assert is_gone(worker)
    with pytest.raises(HoldfastError, match="keep it open"):
        run.take(wire.Probed)
    run.session.close()
    for call in (cluster.add_node, lambda: open_run(cluster, tmp_path)):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_nodes_are_added_and_removed_by_many_threads_at_a_time(cluster: LocalCluster, tmp_path: Path) -> None:
    run = open_run(cluster, tmp_path)

    def come_and_go() -> None:
        for _ in range(3):
            cluster.remove_node(cluster.add_node())

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    run.session.close()
    joined, lost = run.taken(wire.NodeJoining), run.taken(wire.NodeLost)
    assert cluster.nodes == ()
    assert sorted(message.node_id for message in joined) == sorted(message.node_id for message in lost)


def test_an_agent_that_can_never_start_ends_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.engine.node_member._BACKOFF_S", (0.0,))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    run = Watcher(LocalEngine(), configure(tmp_path, dummies.wait_for_ever))
    with pytest.raises(HoldfastError, match="5 times before it was ready"):
        run.take(wire.NodeReady)
    run.session.close()
    assert len(run.taken(wire.NodeJoining)) == 1
    assert not run.taken(wire.NodeLost)


def test_what_a_removed_node_had_on_its_disk_is_gone(cluster: LocalCluster, tmp_path: Path) -> None:
    node = cluster.add_node()
    run_dir = tmp_path / "scratch" / "run" / "epoch-000001"
    scratch = str(tmp_path / "scratch")
    run = open_run(cluster, run_dir, storage=b"never opened here", scratch=scratch, cwd=os.fsencode(tmp_path))
    run.take(wire.NodeReady, node)
    (run_dir / node / "checkpoints").mkdir(parents=True)
    cluster.remove_node(node)
    assert not (run_dir / node).exists()
    run.session.close()


def test_a_return_value_comes_and_the_node_stays(cluster: LocalCluster, tmp_path: Path) -> None:
    node = cluster.add_node()
    run = open_run(cluster, tmp_path, dummies.report_and_return)
    run.take(wire.NodeReady, node)
    run.start(node)
    assert run.take(wire.WorkerHasReturned, node).rank == 0
    run.take(wire.WorkersGone, node, attempt_number=1)
    run.session.close()


def test_a_health_probe_is_quick_and_finds_nothing_here(cluster: LocalCluster, tmp_path: Path) -> None:
    node = cluster.add_node()
    run = open_run(cluster, tmp_path)
    run.take(wire.NodeReady, node)
    run.session.send(node, wire.Probe())
    assert run.take(wire.Probed, node) == wire.Probed(True, [])
    run.session.close()


def test_the_local_engine_is_one_node_without_a_limit(tmp_path: Path) -> None:
    engine = LocalEngine()
    run = Watcher(engine, configure(tmp_path, dummies.report_and_return))
    ready = run.take(wire.NodeReady, "local-0")
    assert ready.cpus == float("inf")
    run.start("local-0", ranks=4)
    wait_until(lambda: run.taken(wire.WorkersGone), "the end of the group")
    run.session.close()
    again = Watcher(engine, configure(tmp_path, dummies.report_and_return))
    again.take(wire.NodeReady, "local-0")
    again.session.close()
