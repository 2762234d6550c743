"""A process tree that is killed as one: nothing forks its way out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.node.process_tree import ProcessTree
from holdfast.platform import process_control

PATIENCE_S = 120.0
FORKING = """
import os, time
end = time.monotonic() + 30  # it must not outlive tests that were killed
def grow(depth):
    while time.monotonic() < end:
        if os.fork() == 0:
            os.setsid()
            if depth < 3:
                grow(depth + 1)
            time.sleep(0.2)
            os._exit(0)
        time.sleep(0.02)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
    os._exit(0)
grow(0)
"""


def children(pid: int) -> list[int]:
    try:
        files = list(Path(f"/proc/{pid}/task").glob("*/children"))
        return [int(child) for file in files for child in file.read_text().split()]
    except OSError:
        return []


def wait_until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_tree_that_forks_all_the_time_is_ended_to_the_last_leaf() -> None:
    """The fixture that looks for processes left behind sees the ones that got away."""
    root = subprocess.Popen([sys.executable, "-c", FORKING], start_new_session=True)
    wait_until(lambda: any(children(child) for child in children(root.pid)))
    tree = ProcessTree()
    tree.add(root.pid)
    tree.kill()
    root.wait(PATIENCE_S)
    assert tree.wait(PATIENCE_S) == []
    tree.close()


def test_stopped_processes_are_ended_too() -> None:
    root = subprocess.Popen(["/bin/sh", "-c", "sleep 600 & sleep 600"], start_new_session=True)
    wait_until(lambda: len(children(root.pid)) == 2)
    below = children(root.pid)
    for pid in (root.pid, *below):
        os.kill(pid, signal.SIGSTOP)
    tree = ProcessTree()
    tree.add(root.pid)
    tree.kill()
    root.wait(PATIENCE_S)
    assert tree.wait(PATIENCE_S) == []
    tree.close()
    assert all(process_control.is_ending(pid) for pid in below)


def test_children_that_were_noted_are_ended_though_their_parent_is_gone() -> None:
    root = subprocess.Popen(["/bin/sh", "-c", "setsid sleep 600 & wait"], start_new_session=True)
    wait_until(lambda: children(root.pid))
    tree = ProcessTree()
    tree.add(root.pid)
    tree.add_children(root.pid)
    root.kill()
    root.wait(PATIENCE_S)
    assert len(tree.wait(0.0)) == 1
    tree.kill()
    assert tree.wait(PATIENCE_S) == []
    tree.close()


def test_a_process_that_has_ended_is_no_part_of_it() -> None:
    ended = subprocess.Popen(["/bin/true"])
    ended.wait(PATIENCE_S)
    tree = ProcessTree()
    tree.add(ended.pid)
    tree.kill()
    assert tree.wait(0.0) == []
    tree.close()


@pytest.mark.parametrize("closed_first", [False, True])
def test_it_can_be_closed_and_killed_in_any_order(closed_first: bool) -> None:
    root = subprocess.Popen(["/bin/sleep", "600"])
    tree = ProcessTree()
    tree.add(root.pid)
    if closed_first:
        tree.close()
    tree.kill()
    if closed_first:
        assert root.poll() is None, "it no longer knows of it"
        root.kill()
    root.wait(PATIENCE_S)
    tree.close()
