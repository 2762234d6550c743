"""A zygote that is stopped (SIGSTOP) when its agent or its driver dies: nothing would wake it, so the kernel must."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.node.launch import ZygoteLauncher
from holdfast.platform import process_control, processes
from support.repository import SUPPORT

OTHER_DRIVER = SUPPORT / "engine" / "other_driver.py"
PATIENCE_S = 120.0
pytestmark = pytest.mark.skipif(not process_control.LINUX, reason="a zygote is forked on Linux alone")


def await_end(*pids: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    try:
        while any(processes.state(pid) not in ("", "Z", "X") for pid in pids):
            assert time.monotonic() < deadline, [processes.state(pid) for pid in pids]
            time.sleep(0.01)
    finally:
        for pid in pids:
            process_control.kill_group(pid)


def wait_until(holds: Callable[[], bool], *told: int) -> None:
    """``told``: the processes of which a failure says what they do."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, [(pid, processes.name(pid), processes.stat_fields(pid)[:4]) for pid in told]
        time.sleep(0.005)


def parent_of(pid: int) -> int:
    fields = processes.stat_fields(pid)
    assert fields is not None
    return int(fields[1])


def test_a_stopped_zygote_does_not_outlive_its_agent(tmp_path: Path) -> None:
    """The driver would end it, so it is stopped too."""
    command = [sys.executable, str(OTHER_DRIVER), str(tmp_path), json.dumps({"timeout_s": PATIENCE_S})]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    with driver.stdout:
        agent, worker = (int(pid) for pid in driver.stdout.readline().split())
        zygote = parent_of(worker)
        assert parent_of(zygote) == agent
        os.kill(zygote, signal.SIGSTOP)
        driver.send_signal(signal.SIGSTOP)
        os.kill(agent, signal.SIGKILL)
        try:
            await_end(zygote, worker, agent)
        finally:
            driver.kill()
            driver.wait(PATIENCE_S)


def fork_launcher() -> tuple[int, int]:
    """An agent in miniature, and its zygote."""
    reading, writing = os.pipe()
    tests = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            launcher = ZygoteLauncher.start([])
            assert launcher._process is not None
            os.write(writing, str(launcher._process.pid).encode())
            while os.getppid() == tests:  # a signal with a handler wakes it
                signal.pause()
        finally:
            os._exit(0)
    os.close(writing)
    zygote = int(os.read(reading, 64))
    os.close(reading)
    return pid, zygote


def test_a_zygote_that_is_merely_woken_goes_on() -> None:
    agent, zygote = fork_launcher()
    wait_until(lambda: processes.name(zygote) == "hf-zygote", agent, zygote)
    os.kill(zygote, signal.SIGSTOP)
    wait_until(lambda: processes.state(zygote) == "T", agent, zygote)
    os.kill(zygote, signal.SIGCONT)
    wait_until(lambda: processes.state(zygote) == "S", agent, zygote)
    os.kill(zygote, signal.SIGSTOP)
    os.kill(agent, signal.SIGKILL)
    os.waitpid(agent, 0)
    await_end(zygote)
