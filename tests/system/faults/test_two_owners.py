"""A run on disk that two drivers want, or that is taken away from its driver: one history, and it is complete."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_driver_faults import PATIENCE_S, children, finish, start, wait_for_commit

from holdfast.errors import RunInUseError
from holdfast.platform import process_control, processes
from holdfast.store import journal
from holdfast.store.layout import RunLayout
from support.faults.job import expected, trainer

PAUSE_S = 0.05


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def fails(process: subprocess.Popen[str]) -> str:
    """What it says."""
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, errors
    return errors


def check_refused(storage: Path, driver: subprocess.Popen[str]) -> None:
    """In this process, which need not start first: the driver must not finish meanwhile."""
    with pytest.raises(RunInUseError, match=f"{driver.pid}"):
        trainer(str(storage), "run", {}).fit()


def verify(run: Path) -> None:
    command = [sys.executable, "-m", "holdfast", "verify", str(run)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def content(run: Path) -> dict[str, Any]:
    """Without the first driver's reports: it may have been stopped while it wrote one down, which then comes behind the
    report from which the second one continued, and does not count."""
    paths = (path for path in sorted(run.rglob("*")) if path.is_file() and path.parent.name != "attempt-0001")
    return {str(path.relative_to(run)): path.read_bytes() for path in paths}


def stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: processes.state(process.pid) == "T", "it does not stop")


def is_leased(run: Path, pid: int) -> bool:
    lease = run / "lease.json"
    return lease.exists() and f'"pid":{pid},' in lease.read_text()


def test_a_backup_by_a_callback_does_not_let_a_second_driver_in(tmp_path: Path) -> None:
    first = start(tmp_path, backup=True, pause_s=PAUSE_S)
    wait_until(lambda: (tmp_path / "backup" / "3").exists(), "there is no backup")
    check_refused(tmp_path, first)
    assert finish(first) == expected()
    verify(tmp_path / "run")


def test_a_driver_stops_when_its_lease_is_deleted_and_the_next_one_continues(tmp_path: Path) -> None:
    first = start(tmp_path, pause_s=PAUSE_S)
    wait_for_commit(tmp_path, 5)
    (tmp_path / "run" / "lease.json").unlink()
    said = fails(first)
    assert "lease.json" in said
    assert "was deleted while this driver held it" in said
    assert finish(start(tmp_path)) == expected()
    verify(tmp_path / "run")


def test_two_drivers_after_the_lease_was_deleted_make_one_history(tmp_path: Path) -> None:
    first = start(tmp_path, pause_s=PAUSE_S)
    wait_for_commit(tmp_path, 5)
    stop(first)
    (tmp_path / "run" / "lease.json").unlink()
    second = start(tmp_path, pause_s=PAUSE_S)
    wait_until(lambda: is_leased(tmp_path / "run", second.pid), "the second driver does not begin")
    first.send_signal(signal.SIGCONT)
    assert f"taken over by process {second.pid} on" in fails(first)
    assert finish(second) == expected()
    verify(tmp_path / "run")


def test_a_stopped_driver_keeps_its_run(tmp_path: Path) -> None:
    first = start(tmp_path, pause_s=PAUSE_S)
    wait_for_commit(tmp_path, 5)
    stop(first)
    check_refused(tmp_path, first)
    first.send_signal(signal.SIGCONT)
    assert finish(first) == expected()
    verify(tmp_path / "run")


@pytest.mark.parametrize("seed", range(3))
def test_a_stopped_driver_that_was_replaced_writes_nothing_when_it_continues(seed: int, tmp_path: Path) -> None:
    """It is stopped at a random moment, maybe in the middle of a commit."""
    moments = random.Random(seed)
    run = tmp_path / "run"
    first = start(tmp_path, pause_s=0.01)
    wait_for_commit(tmp_path, 3)
    time.sleep(moments.uniform(0.0, 0.2))
    stop(first)
    (run / "lease.json").unlink()
    second = start(tmp_path, pause_s=0.01)
    if seed == 0:  # it continues while the other one works
        wait_for_commit(tmp_path, 20)
        first.send_signal(signal.SIGCONT)
        said = fails(first)
        assert finish(second) == expected()
    else:
        assert finish(second) == expected()
        before = content(run)
        first.send_signal(signal.SIGCONT)
        said = fails(first)
        assert content(run) == before
    assert f"taken over by process {second.pid} on" in said
    verify(run)
    starts = [record.body for record in journal.read(RunLayout(run))[0] if record.kind == "DriverStarted"]
    assert [body["epoch"] for body in starts] == [1, 2]


def test_an_agent_that_was_stopped_when_its_driver_died_is_ended_by_the_next_driver(tmp_path: Path) -> None:
    """It is stopped before it has asked the kernel to be woken then."""
    first = start(tmp_path)
    wait_until(lambda: agents(first.pid) != [], "there is no agent")
    (agent,) = agents(first.pid)
    os.kill(agent, signal.SIGSTOP)
    try:
        wait_until(lambda: processes.state(agent) == "T", "it does not stop")
        first.kill()
        first.wait(PATIENCE_S)
        for stream in (first.stdout, first.stderr):
            assert stream is not None
            stream.close()
        wait_until(lambda: processes.stat_fields(agent)[1] != str(first.pid), "its driver is there")
        assert processes.state(agent) == "T"
        assert finish(start(tmp_path)) == expected()
        wait_until(lambda: processes.state(agent) in ("", "Z", "X"), "the agent is stopped for ever")
    finally:
        process_control.kill_group(agent)


def agents(driver: int) -> list[int]:
    return [
        pid for pid in children(driver) if b"holdfast.node.agent_entry" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def test_the_agents_of_a_stopped_driver_that_was_replaced_end(tmp_path: Path) -> None:
    first = start(tmp_path, pause_s=PAUSE_S)
    wait_for_commit(tmp_path, 3)
    (agent,) = agents(first.pid)
    stop(first)
    try:
        (tmp_path / "run" / "lease.json").unlink()
        second = start(tmp_path, pause_s=PAUSE_S)
        wait_until(lambda: processes.state(agent) in ("", "Z", "X"), "the agent of the first driver works on")
    finally:
        first.send_signal(signal.SIGCONT)
    assert f"taken over by process {second.pid} on" in fails(first)
    assert finish(second) == expected()
    verify(tmp_path / "run")


def test_a_run_directory_that_is_moved_is_missed_and_resumes_where_it_is(tmp_path: Path) -> None:
    first = start(tmp_path, pause_s=PAUSE_S)
    wait_for_commit(tmp_path, 5)
    (tmp_path / "new").mkdir()
    (tmp_path / "run").rename(tmp_path / "new" / "run")
    said = fails(first)
    assert f"was moved to {tmp_path / 'new' / 'run'} while its driver was running" in said
    assert not files_in(tmp_path / "run"), "something went on at the old place"
    assert finish(start(tmp_path / "new")) == expected()
    records = journal.read(RunLayout(tmp_path / "new" / "run"))[0]
    bases = [record.body["base"] for record in records if record.kind == "GroupStarted"]
    assert bases[1] >= 5
    verify(tmp_path / "new" / "run")


def test_a_run_directory_that_is_removed_is_missed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = start(tmp_path, pause_s=PAUSE_S)
    wait_for_commit(tmp_path, 5)
    stop(first)
    run.rename(tmp_path / "doomed")  # its workers may write
    shutil.rmtree(tmp_path / "doomed")
    first.send_signal(signal.SIGCONT)
    assert f"The run directory {run} was removed" in fails(first)
    assert finish(start(tmp_path)) == expected()


def files_in(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]
