"""Where workers are in their code: told by hung ones too, and in time."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.engine.local.in_process import InProcessEngine
from holdfast.engine.local.local_cluster import LocalCluster
from holdfast.platform import processes
from holdfast.testing.engine_runs import Watcher, configure, is_gone, parent, wait_until
from holdfast.wire import messages as wire
from support.engine import dummies


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


def stacks_of(run: Watcher, node: str, attempt_number: int = 1) -> dict[int, str]:
    run.session.send(node, wire.DumpStacks(attempt_number))
    return run.take(wire.Stacks, node, attempt_number=attempt_number).texts


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
@pytest.mark.parametrize(
    ("work", "words"),
    [
        (dummies.wait_for_ever, "in wait_for_ever"),
        (dummies.hold_the_interpreter, "in hold_the_interpreter"),
        (dummies.match_for_ever, "in match_for_ever"),
    ],
)
def test_a_worker_tells_where_it_is(
    cluster: LocalCluster, tmp_path: Path, work: Callable[[], None], words: str, start_method: str
) -> None:
    node = cluster.add_node()
    run = Watcher(cluster, configure(tmp_path, work, start_method=start_method))
    run.take(wire.NodeReady, node)
    (worker,) = run.start(node)
    for _ in range(2):
        wait_until(lambda: words in stacks_of(run, node)[0], words)
    assert not is_gone(worker), "and continues"
    assert "Thread 0x" in stacks_of(run, node)[0], "its other threads, too"
    run.session.close()


def test_a_stopped_worker_cannot_tell_and_the_others_do(cluster: LocalCluster, tmp_path: Path) -> None:
    node = cluster.add_node()
    run = Watcher(cluster, configure(tmp_path, dummies.wait_for_ever))
    run.take(wire.NodeReady, node)
    pids = run.start(node, ranks=3)
    os.kill(pids[1], signal.SIGSTOP)
    wait_until(lambda: processes.state(pids[1]) == "T", "the stop")
    texts = stacks_of(run, node)
    assert texts.keys() == {0, 1, 2}
    assert "(no answer: the process is stopped)" in texts[1]
    assert all("wait_for_ever" in texts[rank] for rank in (0, 2))
    os.kill(pids[1], signal.SIGCONT)
    wait_until(lambda: "wait_for_ever" in stacks_of(run, node)[1], "the answer of the one that continues")
    run.session.close()


def test_a_worker_that_is_not_armed_yet_is_not_hurt(cluster: LocalCluster, tmp_path: Path) -> None:
    """The signal would end a process that does not handle it."""
    node = cluster.add_node()
    run = Watcher(cluster, configure(tmp_path, dummies.wait_for_ever, start_method="spawn"))
    run.take(wire.NodeReady, node)
    run.session.send(node, wire.StartWorkers(1, 1, 0, None, [wire.Place(0, 0, 1, 0)]))
    pid = run.take(wire.WorkerStarted, node).pid
    os.kill(pid, signal.SIGSTOP)  # while Python starts
    early = stacks_of(run, node)[0]
    os.kill(pid, signal.SIGCONT)
    run.take(wire.WorkerIsReady, node)
    assert "no answer" in early
    assert "wait_for_ever" in stacks_of(run, node)[0]
    run.session.close()


def test_a_worker_in_the_script_itself_tells_too(tmp_path: Path) -> None:
    engine = InProcessEngine()

    def drive() -> str:
        run = Watcher(engine, configure(tmp_path, dummies.wait_until_told))
        run.take(wire.NodeReady)
        run.start("in-process")
        try:
            wait_until(lambda: "in wait_until_told" in stacks_of(run, "in-process")[0], "the worker waits")
            return stacks_of(run, "in-process")[0]
        finally:
            dummies.told.set()
            run.take(wire.WorkersGone)
            run.session.close()

    assert "in wait_until_told" in engine.host(drive, lambda _number, _at_once: None)


def test_a_worker_that_its_zygote_has_not_forked_yet(cluster: LocalCluster, tmp_path: Path) -> None:
    node = cluster.add_node()
    run = Watcher(cluster, configure(tmp_path, dummies.wait_for_ever))
    run.take(wire.NodeReady, node)
    (first,) = run.start(node)
    zygote = parent(first)
    os.kill(zygote, signal.SIGSTOP)
    run.session.send(node, wire.StartWorkers(2, 1, 0, None, [wire.Place(0, 0, 1, 0)]))
    assert "has not been forked yet" in stacks_of(run, node, 2)[0]
    os.kill(zygote, signal.SIGCONT)
    run.take(wire.WorkerIsReady, node, attempt_number=2)
    run.session.close()


def test_an_attempt_that_is_not_there_has_no_stacks(cluster: LocalCluster, tmp_path: Path) -> None:
    node = cluster.add_node()
    run = Watcher(cluster, configure(tmp_path, dummies.wait_for_ever))
    run.take(wire.NodeReady, node)
    assert stacks_of(run, node, attempt_number=9) == {}
    run.session.close()
