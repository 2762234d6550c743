"""``holdfast stop``: a living driver is asked and ends well; where there is none, that is said."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from holdfast.driver import stop_requests
from holdfast.driver.stop_requests import StopRequest
from holdfast.store.location import Location
from support.cli.cli_shell import PATIENCE_S, finish_job, holdfast, holdfast_json, start, start_job, wait_for_checkpoint

STOPPED = 128 + signal.SIGTERM


@pytest.mark.parametrize(("workers", "code"), [(2, STOPPED), (0, -signal.SIGINT)], ids=["workers", "in process"])
def test_a_living_driver_stops_and_the_run_goes_on_later(tmp_path: Path, workers: int, code: int) -> None:
    job = start_job(tmp_path, steps=100_000, pause_s=0.02, workers=workers)
    wait_for_checkpoint(tmp_path, 3)
    done = holdfast("stop", tmp_path / "run")
    assert done.stdout == f"{tmp_path / 'run'} is stopped\n"
    assert f"asked process {job.pid} on {socket.gethostname()} to stop" in done.stderr
    finish_job(job, code=code)
    assert not (tmp_path / "run" / stop_requests.KEY).exists()
    shown = holdfast_json("show", tmp_path / "run")
    assert shown["state"] == "stopped"
    finish_job(start_job(tmp_path, steps=shown["reports"] + 2, workers=workers))
    assert holdfast_json("show", tmp_path / "run")["metrics"]["step"] == shown["reports"] + 2


def test_json_and_without_waiting(tmp_path: Path) -> None:
    job = start_job(tmp_path, wait_at=3)
    wait_for_checkpoint(tmp_path, 3)
    told = holdfast_json("stop", tmp_path / "run", "--no-wait", "--now")
    assert (told["asked"], told["state"]) == (True, "running")
    finish_job(job, code=STOPPED)


@pytest.mark.parametrize("name", ["finished", "failed", "stopped", "killed"])
def test_a_run_that_nobody_drives(storage: Path, name: str) -> None:
    state = "interrupted" if name == "killed" else name
    assert (
        holdfast("stop", storage / name).stdout == f"nothing to stop: {storage / name} has no driver (state: {state})\n"
    )
    assert holdfast_json("stop", storage / name)["asked"] is False


def test_a_driver_that_does_not_hear(tmp_path: Path) -> None:
    job = start_job(tmp_path, wait_at=3)
    wait_for_checkpoint(tmp_path, 3)
    job.send_signal(signal.SIGSTOP)
    done = holdfast("stop", tmp_path / "run", "--timeout", 1, code=1)
    assert f"process {job.pid} on {socket.gethostname()} did not respond" in done.stderr
    assert not (tmp_path / "run" / stop_requests.KEY).exists()
    job.send_signal(signal.SIGCONT)
    (tmp_path / "go").touch()
    finish_job(job)


def test_a_request_to_another_driver_is_none(tmp_path: Path) -> None:
    """It may have been left for one that died, and whose number is now another's."""
    job = start_job(tmp_path, wait_at=3)
    wait_for_checkpoint(tmp_path, 3)
    objects = Location.parse("run", tmp_path / "run").open(1.0)
    host = socket.gethostname()
    for request in (
        StopRequest(host, job.pid, time.time() - 3600, at_once=True),
        StopRequest(host, job.pid + 1, time.time() + 3600, at_once=True),
        StopRequest(f"not-{host}", job.pid, time.time() + 3600, at_once=True),
    ):
        stop_requests.leave(objects, request)
        time.sleep(1.2 * stop_requests.LOOKS_EVERY_S)  # should it be heeded, the run does not finish below
    objects.put(stop_requests.KEY, b"no request")
    (tmp_path / "go").touch()
    finish_job(job)


AS_NOBODY = """
import os, sys
from holdfast.cli import main
# What is imported later may not be readable then.
import locale, holdfast.cli.stop, holdfast.store.objects.opening, holdfast.store.objects.files
os.setegid(65534); os.seteuid(65534)
sys.exit(main.main(sys.argv[1:]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_a_run_that_may_not_be_written() -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-stop-") as directory:  # pytest's own are closed to others
        storage = Path(directory)
        storage.chmod(0o755)
        job = start_job(storage, wait_at=3)
        wait_for_checkpoint(storage, 3)
        command = [sys.executable, "-c", AS_NOBODY, "stop", str(storage / "run")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        (storage / "go").touch()
        finish_job(job)
    assert done.returncode == 1, done.stderr
    assert f"the stop request cannot be written to {storage / 'run'}" in done.stderr
    assert "Permission denied" in done.stderr
    assert done.stderr.count("\n") == 1


def test_wrong_input(storage: Path) -> None:
    assert (
        "'soon': use a number of seconds" in holdfast("stop", storage / "finished", "--timeout", "soon", code=2).stderr
    )


def test_the_thread_that_looks_ends_with_the_run(tmp_path: Path) -> None:
    asked: list[tuple[int, bool]] = []
    location = Location.parse("run", tmp_path)
    objects = location.open(1.0)
    with stop_requests.watched(location, lambda number, at_once: asked.append((number, at_once))):
        me = (socket.gethostname(), os.getpid(), time.time())
        for at_once in (False, True):
            stop_requests.leave(objects, StopRequest(*me, at_once=at_once))
            deadline = time.monotonic() + PATIENCE_S
            while stop_requests.is_waiting(objects):
                assert time.monotonic() < deadline
                time.sleep(0.01)
    assert asked == [(signal.SIGTERM, False), (signal.SIGTERM, True)]


def test_two_that_ask_at_once(tmp_path: Path) -> None:
    job = start_job(tmp_path, steps=100_000, pause_s=0.02)
    wait_for_checkpoint(tmp_path, 3)
    askers = [start([sys.executable, "-m", "holdfast", "stop", "--json", str(tmp_path / "run")]) for _ in range(2)]
    for asker in askers:
        out, errors = asker.communicate(timeout=PATIENCE_S)
        assert asker.returncode == 0, errors
        assert json.loads(out)["state"] == "stopped"
    finish_job(job, code=STOPPED)
