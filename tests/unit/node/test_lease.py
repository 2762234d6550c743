"""The place that an agent's workers have on a machine, and when the lease of a stopped agent ends them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from holdfast.node import node_lease
from holdfast.node.launch import ZygoteLauncher
from holdfast.node.node_lease import NodeLease
from holdfast.platform import process_control

PATIENCE_S = 120.0
pytestmark = pytest.mark.skipif(not process_control.LINUX, reason="places and zygotes are Linux's")


def close(*leases: NodeLease) -> None:
    for held in leases:
        for fd in held.fds:
            if fd >= 0:
                os.close(fd)


def test_a_place_is_free_when_the_last_process_that_has_it_is_gone(tmp_path: Path) -> None:
    first, second = NodeLease(), NodeLease()
    assert first.move_in(str(tmp_path), "node") is True
    assert second.move_in(str(tmp_path), "node") is False
    assert second.move_in(str(tmp_path), "other") is True
    launcher, third = ZygoteLauncher.start([], first), NodeLease()
    close(first)
    first.fds = (-1, -1)
    assert third.move_in(str(tmp_path), "node") is False
    launcher.close()
    assert third.move_in(str(tmp_path), "node") is True
    close(second, third)


def test_a_zygote_ends_when_the_lease_is_over_though_its_agent_does_not_move(tmp_path: Path) -> None:
    held, successor = NodeLease(), NodeLease()
    assert held.move_in(str(tmp_path), "node")
    launcher = ZygoteLauncher.start([], held)
    held.leave_to_zygote()
    held.end = node_lease.now() + 0.2
    deadline = time.monotonic() + PATIENCE_S
    while not successor.move_in(str(tmp_path), "node"):
        assert time.monotonic() < deadline, "the zygote lives on"
        time.sleep(0.01)
    launcher.close()
    close(held, successor)


def test_a_lease_that_goes_on_ends_nobody() -> None:
    held = NodeLease()
    assert not held.is_over
    held.end = node_lease.now() - 1.0
    assert held.is_over
    assert held.left_s == 0.0
    same = NodeLease(held.fds)
    same.end = node_lease.now() + 100.0
    assert not held.is_over
    close(held)
