"""Several runs on one agent: each has its own processes and files, and its end is its own."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest

from holdfast.wire import messages as wire
from support.node import trial_work
from support.node.agent_at_work import AgentAtWork, agent, is_gone, open_files, threads, wait_until


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[AgentAtWork]:
    with agent(tmp_path / "own") as at_work:
        yield at_work


def one_worker(attempt_number: int = 1) -> wire.StartWorkers:
    return wire.StartWorkers(attempt_number, 1, 0, None, [wire.Place(0, 0, 1, 0)])


def below(pid: int) -> list[int]:
    found, todo = [], [pid]
    while todo:
        for path in Path(f"/proc/{todo.pop()}/task").glob("*/children"):
            try:
                children = [int(child) for child in path.read_text().split()]
            except OSError:
                continue
            found += children
            todo += children
    return found


def test_each_run_has_its_own_payload_directory_and_output(shared: AgentAtWork, tmp_path: Path) -> None:
    for run in (1, 2):
        ready = shared.open(run, tmp_path / f"trial-{run}", trial_work.return_name)
        assert ready.pid == shared.process.pid
        shared.order(run, one_worker())
    for run in (2, 1):
        name = f"trial-{run}"
        assert cloudpickle.loads(shared.take(wire.WorkerHasReturned, run).body) == name
        (report,) = shared.take(wire.Reports, run).reports
        assert json.loads(report.line)["metrics"] == {"a": 1}
        assert shared.take(wire.Output, run).lines == [f"hello from {name}"]
        shared.take(wire.WorkersGone, run, attempt_number=1)
        assert (tmp_path / name / "logs" / "attempt-0001" / "rank-0.log").read_text() == f"hello from {name}\n"
        shared.close(run)
    assert shared.seen
    assert all(isinstance(said, wire.OfRun) for said in shared.seen)


def test_the_agents_own_run_goes_on_as_ever_beside_others(tmp_path: Path) -> None:
    with agent(tmp_path / "own", payload=cloudpickle.dumps(trial_work.return_name)) as shared:
        shared.open(1, tmp_path / "trial", trial_work.wait_for_ever)
        shared.start(1)
        shared.tell(one_worker())
        assert cloudpickle.loads(shared.take(wire.WorkerHasReturned).body) == "own"
        shared.take(wire.WorkersGone)
        shared.close(1)


def test_closing_a_run_ends_what_is_left_of_it_and_of_no_other(shared: AgentAtWork, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {os.fsencode(k): os.fsencode(v) for k, v in {**os.environ, "TMPDIR": str(temporary)}.items()}
    shared.open(1, tmp_path / "one", trial_work.wait_with_leftovers, env=env)
    shared.open(2, tmp_path / "two", trial_work.wait_for_ever, env=env)
    (one,), (two,) = shared.start(1), shared.start(2)
    family = [one, *below(one)]
    assert len(family) == 3, "an orphan of the worker's child is the worker's"
    assert list(temporary.glob(f"holdfast-{one}-*"))
    shared.close(1, over=False)
    assert is_gone(one)
    wait_until(lambda: all(map(is_gone, family)), "the end of the worker's family")
    assert not list(temporary.glob(f"holdfast-{one}-*"))
    assert not is_gone(two)
    shared.order(1, one_worker(2))  # too late: nobody hears it
    shared.close(2)
    assert is_gone(two)
    assert not [said for said in shared.seen if isinstance(said.message, wire.WorkerHasFailed)]


def test_what_multiprocessing_makes_bears_the_workers_mark(shared: AgentAtWork, tmp_path: Path) -> None:
    env = {os.fsencode(k): os.fsencode(v) for k, v in {**os.environ, "TMPDIR": str(tmp_path)}.items()}
    shared.open(1, tmp_path / "one", trial_work.share_between_processes, env=env)
    (pid,) = shared.start(1)
    directory = Path(shared.take(wire.Output, 1).lines[0])
    assert directory.is_dir()
    assert directory.name.startswith(f"holdfast-{pid}-")
    shared.close(1)
    assert not directory.exists()


def test_what_a_worker_leaves_behind_goes_with_it_though_others_live(shared: AgentAtWork, tmp_path: Path) -> None:
    shared.open(1, tmp_path / "one", trial_work.wait_for_ever)
    shared.open(2, tmp_path / "two", trial_work.leave_a_daemon)
    (one,), _ = shared.start(1), shared.start(2)
    daemon = cloudpickle.loads(shared.take(wire.WorkerHasReturned, 2).body)
    shared.take(wire.WorkersGone, 2)
    wait_until(lambda: is_gone(daemon), "the daemon's end")
    assert not is_gone(one)
    shared.close(1)
    shared.close(2)


def test_a_run_that_is_told_to_close_while_its_worker_is_being_forked(shared: AgentAtWork, tmp_path: Path) -> None:
    shared.open(1, tmp_path / "one", trial_work.wait_for_ever)
    shared.order(1, one_worker())
    shared.close(1)
    assert is_gone(shared.take(wire.WorkerStarted, 1).pid)


def test_more_workers_at_once_than_a_zygote_is_asked_for(shared: AgentAtWork, tmp_path: Path) -> None:
    shared.open(1, tmp_path / "many", trial_work.return_name)
    shared.open(2, tmp_path / "one", trial_work.wait_for_ever)
    places = [wire.Place(rank, rank, 40, 0) for rank in range(40)]
    shared.order(1, wire.StartWorkers(1, 40, 0, None, places))
    shared.order(2, one_worker())
    for rank in range(40):
        shared.take(wire.WorkerHasReturned, 1, rank=rank)
    shared.take(wire.WorkersGone, 1)
    shared.take(wire.WorkerIsReady, 2)
    shared.close(1)
    shared.close(2)


@pytest.mark.parametrize("forked", [True, False])
def test_a_worker_that_is_told_to_stop_before_it_runs(shared: AgentAtWork, tmp_path: Path, forked: bool) -> None:
    shared.open(1, tmp_path / "one", trial_work.wait_for_ever, stop_grace_s=1000.0)
    for attempt_number in range(1, 9):
        shared.order(1, one_worker(attempt_number))
        if forked:
            shared.take(wire.WorkerStarted, 1, attempt_number=attempt_number)
        shared.order(1, wire.StopWorkers(attempt_number, graceful=True))
        shared.take(wire.WorkersGone, 1, attempt_number=attempt_number)
    shared.close(1)


def test_one_runs_failing_workers_do_not_touch_anothers(shared: AgentAtWork, tmp_path: Path) -> None:
    shared.open(1, tmp_path / "steady", trial_work.wait_for_ever)
    (steady,) = shared.start(1)
    for run, work in ((2, trial_work.fail), (3, trial_work.die)):
        shared.open(run, tmp_path / f"trial-{run}", work)
        shared.order(run, one_worker())
        failed = shared.take(wire.WorkerHasFailed, run)
        shared.take(wire.WorkersGone, run)
        if failed.raised is None:
            assert failed.signal == signal.SIGKILL
        else:
            assert failed.raised.message == "this trial is wrong"
        shared.close(run)
    assert not is_gone(steady)
    shared.order(1, wire.StopWorkers(1, graceful=True))
    shared.take(wire.WorkersGone, 1)
    shared.close(1)


def test_a_run_is_closed_when_its_storage_orders_are_done(shared: AgentAtWork, tmp_path: Path) -> None:
    shared.open(1, tmp_path / "one", trial_work.stage)
    shared.order(1, one_worker())
    shared.take(wire.Reports, 1)
    shared.order(1, wire.Seal(1, [0], 0))
    shared.tell(wire.CloseRun(1, over=True))
    shared.take(wire.RunClosed)
    sealed = shared.take(wire.Sealed, 1)
    assert [file[0] for file in sealed.files] == ["state"]


def test_a_run_that_nobody_knows_is_closed_already(shared: AgentAtWork) -> None:
    shared.order(7, one_worker())
    shared.close(7)


@pytest.mark.parametrize("how", ["kill", "hang up", "shut down", "cut the zygote"])
def test_all_runs_end_with_the_agent(shared: AgentAtWork, tmp_path: Path, how: str) -> None:
    pids = []
    for run in (1, 2, 3):
        shared.open(run, tmp_path / f"trial-{run}", trial_work.wait_for_ever)
        pids += shared.start(run, ranks=2)
    if how == "kill":
        shared.process.kill()
    elif how == "shut down":
        shared.tell(wire.Shutdown())
    elif how == "cut the zygote":
        os.kill(int(Path(f"/proc/{pids[0]}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
    shared.end() if how == "hang up" else shared.process.wait(60)
    wait_until(lambda: all(map(is_gone, pids)), "the end of all workers")


def test_a_notice_to_the_machine_is_told_once_and_ends_all_runs(tmp_path: Path) -> None:
    with agent(tmp_path / "own", preemption_grace_s=0.1) as shared:
        shared.open(1, tmp_path / "one", trial_work.wait_for_ever)
        (pid,) = shared.start(1)
        shared.process.send_signal(signal.SIGTERM)
        shared.take(wire.NodeDraining)
        shared.process.wait(60)
        assert is_gone(pid)


def test_a_closed_run_leaves_no_file_and_no_thread_in_the_agent(shared: AgentAtWork, tmp_path: Path) -> None:
    def one_run(run: int) -> None:
        shared.open(run, tmp_path / f"trial-{run}", trial_work.stage)
        shared.order(run, one_worker())
        shared.order(run, wire.Seal(1, [0], 0))
        shared.take(wire.Sealed, run)
        shared.take(wire.WorkersGone, run)
        shared.close(run)

    for run in range(4):
        one_run(run)
    before = open_files(shared.process.pid), threads(shared.process.pid)
    for run in range(4, 12):
        one_run(run)
    assert (open_files(shared.process.pid), threads(shared.process.pid)) == before
