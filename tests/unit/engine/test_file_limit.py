"""A process that may open no more files: that costs the worker that was to start, and the error names the remedy."""

from __future__ import annotations

import errno
import itertools
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.engine.local.local_cluster import LocalCluster
from holdfast.errors import TuneError
from holdfast.platform import open_files
from holdfast.platform.process_control import LINUX
from holdfast.testing.engine_runs import PATIENCE_S, Watcher, configure, is_gone, parent
from holdfast.tune.experiment.experiment_session import ExperimentSession
from holdfast.wire import messages as wire
from support.engine import dummies

REMEDY = "ulimit -n"
pytestmark = pytest.mark.skipif(not LINUX, reason="the limit of another process can be set on Linux alone")


@pytest.fixture
def soft_limit() -> Iterator[int]:
    """Of this process, below the one that it may set."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < 600:
        pytest.skip("there is no room below the hard limit")
    resource.setrlimit(resource.RLIMIT_NOFILE, (500, before[1]))
    yield 500
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def limit(pid: int, spare: int) -> None:
    """To what it has open, and so many more."""
    taken = {int(fd) for fd in os.listdir(f"/proc/{pid}/fd")}
    free = (number for number in itertools.count() if number not in taken)
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (next(itertools.islice(free, spare, None)), hard))


def lift(pid: int) -> None:
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))


@pytest.mark.parametrize("who", ["agent", "zygote"])
def test_a_worker_for_which_there_is_no_file_left_is_a_failure_of_its_own(tmp_path: Path, who: str) -> None:
    with LocalCluster() as cluster:
        node = cluster.add_node()
        run = Watcher(cluster, configure(tmp_path, dummies.wait_for_ever, node_timeout_s=PATIENCE_S))
        ready = run.take(wire.NodeReady, node)
        (living,) = run.start(node)
        limited = ready.pid if who == "agent" else parent(living)
        limit(limited, spare=40 if who == "agent" else 2)
        places = [wire.Place(rank, rank, 10, 0) for rank in range(10)]
        run.session.send(node, wire.StartWorkers(2, 10, 0, None, places))
        failure = run.take(wire.WorkerHasFailed, node)
        assert (failure.attempt_number, failure.exit_code, failure.started) == (2, os.EX_OSERR, False)
        assert "Too many open files" in failure.last_lines[-1]
        assert REMEDY in failure.last_lines[-1]
        run.session.send(node, wire.StopWorkers(2, graceful=False))
        run.take(wire.WorkersGone, node, attempt_number=2)
        lift(limited)
        run.start(node, attempt_number=3)
        assert not is_gone(living)
        assert not run.taken(wire.NodeLost)
        run.session.close()


def test_an_agent_allows_itself_what_it_may(tmp_path: Path, soft_limit: int) -> None:
    with LocalCluster() as cluster:
        node = cluster.add_node()
        run = Watcher(cluster, configure(tmp_path, dummies.wait_for_ever, node_timeout_s=PATIENCE_S))
        pid = run.take(wire.NodeReady, node).pid
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE)[0] > soft_limit
        run.session.close()


def test_a_driver_does_so_for_as_long_as_it_runs(soft_limit: int) -> None:
    with open_files.limit_raised():
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > soft_limit
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == soft_limit


def test_an_experiment_that_cannot_open_a_file_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> str:
        try:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        except OSError as error:
            raise RuntimeError("a callback raised it") from error

    monkeypatch.setattr(ExperimentSession, "run", fail)
    run = tune.RunConfig(storage_path=tmp_path, name="e", verbose=0)
    with pytest.raises(TuneError, match=rf"a callback raised it.*{REMEDY}.*Tuner\.restore\("):
        tune.Tuner(print, run_config=run).fit()
