"""A node that may have no more processes: that costs the worker that was to start, and none that lives."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.engine.local.local_cluster import LocalCluster
from holdfast.node.launch import SpawnLauncher
from holdfast.platform.process_control import LINUX
from holdfast.testing.engine_runs import PATIENCE_S, Watcher, configure, is_gone, parent, wait_until
from holdfast.wire import messages as wire
from holdfast.wire.zygote_messages import NotForked
from support.engine import dummies

GROUPS = Path("/sys/fs/cgroup")
WHY = "no process could be started for this worker: "


@pytest.fixture
def forbid_forks() -> Iterator[Callable[[int], Callable[[], None]]]:
    """Call it with a process that is to fork no more; what it gives back lets it again."""
    with contextlib.ExitStack() as stack:
        if os.geteuid() != 0:
            yield _limit_of_user
            return
        group = stack.enter_context(_group())

        def forbid(pid: int) -> Callable[[], None]:
            (group / "cgroup.procs").write_text(str(pid))
            (group / "pids.max").write_text("1")
            return lambda: _write(group / "pids.max", "max")

        yield forbid


def _limit_of_user(pid: int) -> Callable[[], None]:
    before = resource.prlimit(pid, resource.RLIMIT_NPROC)
    resource.prlimit(pid, resource.RLIMIT_NPROC, (1, before[1]))

    def lift() -> None:
        resource.prlimit(pid, resource.RLIMIT_NPROC, before)

    return lift


def _write(path: Path, text: str) -> None:
    path.write_text(text)


@contextlib.contextmanager
def _group() -> Iterator[Path]:
    """The superuser has no other limit than a control group's."""
    group = (GROUPS / "pids" if (GROUPS / "pids").is_dir() else GROUPS) / f"holdfast-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "pids.max").write_text("max")
    except OSError as error:
        group.rmdir() if group.exists() else None
        pytest.skip(f"no control group of processes can be made here: {error}")
    yield group
    wait_until(lambda: not (group / "cgroup.procs").read_text(), "the end of all processes in the group")
    group.rmdir()


@pytest.mark.skipif(not LINUX, reason="a zygote is forked on Linux alone")
def test_a_worker_that_cannot_be_forked_is_a_failure_of_its_own(
    forbid_forks: Callable[[int], Callable[[], None]], tmp_path: Path
) -> None:
    with LocalCluster() as cluster:
        node = cluster.add_node()
        run = Watcher(cluster, configure(tmp_path, dummies.wait_for_ever, node_timeout_s=PATIENCE_S))
        run.take(wire.NodeReady, node)
        (living,) = run.start(node)
        lift = forbid_forks(parent(living))
        run.session.send(node, wire.StartWorkers(2, 1, 0, None, [wire.Place(0, 0, 1, 0)]))
        failure = run.take(wire.WorkerHasFailed, node)
        assert (failure.attempt_number, failure.exit_code, failure.started) == (2, os.EX_OSERR, False)
        assert WHY in failure.last_lines[-1]
        run.take(wire.WorkersGone, node, attempt_number=2)
        lift()
        run.start(node, attempt_number=3)
        assert not is_gone(living)
        assert not run.taken(wire.NodeLost)
        run.session.close()


def test_a_worker_that_cannot_be_spawned_is_a_failure_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", fail)
    launcher = SpawnLauncher()
    reading, writing = os.pipe()
    try:
        launcher.launch(7, (0, writing, 0, 0))
        assert list(launcher.events()) == [NotForked(7)]
        assert WHY in os.read(reading, 1 << 12).decode()
    finally:
        launcher.close()
        os.close(reading)
        os.close(writing)
