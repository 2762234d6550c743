"""A worker that the kernel kills for memory is told from one that somebody kills."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.engine.local.local_cluster import LocalCluster
from holdfast.testing.engine_runs import PATIENCE_S, Watcher, configure, wait_until
from holdfast.wire import messages as wire
from support.engine import dummies

LIMIT = 256 << 20
GROUPS = Path("/sys/fs/cgroup")


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A control group whose processes may have a little memory only; of version 1 or 2, as there is."""
    version1 = (GROUPS / "memory").is_dir()
    group = (GROUPS / "memory" if version1 else GROUPS) / f"holdfast-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if version1 else "memory.max")).write_text(str(LIMIT))
    except OSError as error:
        group.rmdir() if group.exists() else None
        pytest.skip(f"no memory control group can be made here: {error}. The counters are read in test_cgroups.py")
    yield group
    wait_until(lambda: not (group / "cgroup.procs").read_text(), "the end of all processes in the group")
    group.rmdir()


def test_a_worker_in_a_group_of_its_own_is_killed_for_memory(
    memory_group: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_CGROUP", str(memory_group))
    assert failure_of(dummies.eat_memory, tmp_path).oom_killed


def test_a_worker_that_somebody_kills_was_not_killed_for_memory(tmp_path: Path) -> None:
    assert not failure_of(dummies.be_killed, tmp_path).oom_killed


def failure_of(work: object, tmp_path: Path) -> wire.WorkerHasFailed:
    with LocalCluster() as cluster:
        node = cluster.add_node()
        run = Watcher(cluster, configure(tmp_path, work, node_timeout_s=PATIENCE_S))  # type: ignore[arg-type]
        run.take(wire.NodeReady, node)
        run.session.send(node, wire.StartWorkers(1, 1, 0, None, [wire.Place(0, 0, 1, 0)]))
        failure = run.take(wire.WorkerHasFailed, node)
        run.session.close()
    assert failure.signal == 9
    return failure
