"""An experiment on disk that two drivers want, or that is taken away from its driver: one complete history."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_kills import ENDS_WITHIN_S, check_results, epochs, start, wait_for_progress

from holdfast.errors import RunInUseError
from holdfast.platform import processes
from support.tune import counting


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + ENDS_WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def check_refused(storage: Path, driver: subprocess.Popen[bytes]) -> None:
    with pytest.raises(RunInUseError, match=f"{driver.pid}"):
        counting.tuner(str(storage)).fit()


def fails(process: subprocess.Popen[bytes]) -> str:
    """What it says."""
    _, errors = process.communicate(timeout=ENDS_WITHIN_S)
    assert process.returncode == 1, errors.decode()
    return errors.decode()


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate(timeout=ENDS_WITHIN_S)
    assert process.returncode == 0, errors.decode()


def verify(experiment: Path) -> None:
    command = [sys.executable, "-m", "holdfast", "verify", str(experiment)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def content(experiment: Path) -> dict[str, Any]:
    """Without what is the first driver's own: the reports of its attempts (see the same test of runs), and the files of
    TensorBoard, one a driver, which it closes."""
    paths = (path for path in sorted(experiment.rglob("*")) if path.is_file() and path.parent.name != "attempt-0001")
    return {str(path.relative_to(experiment)): path.read_bytes() for path in paths if "tfevents" not in path.name}


def is_leased(experiment: Path, pid: int) -> bool:
    lease = experiment / "lease.json"
    return lease.exists() and f'"pid":{pid},' in lease.read_text()


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: processes.state(process.pid) == "T", "it does not stop")


@pytest.mark.filterwarnings("ignore:Tuner.restore")  # what a callback does is not stored
def test_a_backup_by_a_callback_does_not_let_a_second_driver_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKUP", str(tmp_path / "backup"))
    first = start(tmp_path, "fifo")
    wait_until(lambda: len(list(tmp_path.glob("backup/*"))) > 1, "there is no backup")
    check_refused(tmp_path, first)
    finish(first)
    check_results(tmp_path, "fifo")


@pytest.mark.parametrize("continues", ["while the next one works", "when the next one has finished"])
def test_a_stopped_driver_keeps_its_experiment_until_somebody_deletes_the_lease(tmp_path: Path, continues: str) -> None:
    experiment = tmp_path / "counted"
    first = start(tmp_path, "fifo")
    wait_for_progress(first, tmp_path, 5)
    stop(first)
    try:
        check_refused(tmp_path, first)
        (experiment / "lease.json").unlink()
        second = start(tmp_path, "fifo")
        if continues == "when the next one has finished":
            finish(second)
            before = content(experiment)
        else:
            wait_until(lambda: is_leased(experiment, second.pid), "the second driver does not begin")
            wait_for_progress(second, tmp_path, 4)
    finally:
        first.send_signal(signal.SIGCONT)
    assert f"taken over by process {second.pid} on" in fails(first)
    if continues == "when the next one has finished":
        assert content(experiment) == before
    else:
        finish(second)
    check_results(tmp_path, "fifo")
    verify(experiment)


def test_an_experiment_that_is_moved_is_missed_and_resumes_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    first = start(tmp_path / "old", "fifo")
    wait_for_progress(first, tmp_path / "old", 5)
    (tmp_path / "new").mkdir()
    os.rename(tmp_path / "old" / "counted", tmp_path / "new" / "counted")
    assert f"was moved to {tmp_path / 'new' / 'counted'} while its driver was running" in fails(first)
    finish(start(tmp_path / "new", "fifo"))
    check_results(tmp_path / "new", "fifo")
    assert len(epochs(tmp_path / "new")) < 4 * counting.EPOCHS, "all of it was repeated"
