"""The examples about failures: each is killed as its text says, and must end as if nothing had happened."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from support.examples.example_shell import Command, Shell
from support.examples.same_run import assert_same_run, assert_same_state, checkpoint_directory, kill_worker

pytestmark = pytest.mark.timeout(600)


def epochs_of(output: str, rank: int) -> list[tuple[int, int]]:
    """(pid, epoch) of each line that a rank printed, in order."""
    lines = re.findall(rf"\(rank {rank}\) pid (\d+): epoch (\d+)", output)
    return [(int(pid), int(epoch)) for pid, epoch in lines]


def assert_went_on(output: str, rank: int, epochs: int) -> None:
    """A later process of a rank begins with the epoch after the last one reported: no gap, and no step further back."""
    lines = epochs_of(output, rank)
    assert lines[0][1] == 0
    assert lines[-1][1] == epochs - 1
    for (pid, epoch), (next_pid, next_epoch) in pairwise(lines):
        if next_pid == pid:
            assert next_epoch == epoch + 1
        else:
            # An epoch is printed before it is reported, so the last one printed may have to be repeated.
            assert next_epoch in (epoch, epoch + 1)


def test_worker_failure(shell: Shell, undisturbed: Callable[[str], Path]) -> None:
    command = shell.start("worker_failure.py", "--storage-path", str(shell.storage), "--run-name", "killed")
    seen = kill_worker(command, rank=1, epoch=4)
    kill_worker(command, rank=0, epoch=9, after=seen)
    assert command.finish() == 0, command.output
    assert_went_on(command.output, 1, 20)
    assert len({pid for pid, _ in epochs_of(command.output, 1)}) == 3, "two kills make three processes"
    shell.wait_for_no_process()
    assert_same_run(shell.storage / "killed", undisturbed("worker_failure.py"))


def test_sharded_checkpoints(shell: Shell, undisturbed: Callable[[str], Path], tmp_path: Path) -> None:
    command = shell.start("sharded_checkpoints.py", "--storage-path", str(shell.storage), "--run-name", "killed")
    kill_worker(command, rank=1, epoch=3)
    assert command.finish() == 0, command.output
    assert_went_on(command.output, 1, 10)
    shell.wait_for_no_process()

    run, reference = shell.storage / "killed", undisturbed("sharded_checkpoints.py")
    assert {"__0_0.distcp", "__1_0.distcp"} <= {file.name for file in checkpoint_directory(run).iterdir()}
    assert_same_run(run, reference)
    states = []
    for path in (run, reference):
        whole = tmp_path / "whole.pt"
        dcp_to_torch_save(checkpoint_directory(path), whole)
        states.append(torch.load(whole))
    assert_same_state(*states)


def resume(shell: Shell, name: str, stop: Callable[[Command], None]) -> tuple[str, str]:
    """Start an example, stop its driver on the way, start it again. Returns both outputs."""
    args = (name, "--storage-path", str(shell.storage), "--run-name", "stopped")
    command = shell.start(*args)
    command.wait_for(r"\(rank 0\) epoch 5\b")
    stop(command)
    assert command.finish() != 0
    shell.wait_for_no_process()
    return command.output, shell.run(*args)


def assert_resumed(first: str, second: str) -> None:
    done = [int(epoch) for epoch in re.findall(r"\(rank 0\) epoch (\d+)", first)]
    after = [int(epoch) for epoch in re.findall(r"\(rank 0\) epoch (\d+)", second)]
    # What all ranks had reported is not repeated. The driver that was killed may not have shown all of it.
    assert 0 < done[-1] <= after[0]
    assert after == list(range(after[0], 20))


@pytest.mark.parametrize("how", ["kill", "interrupt"])
def test_driver_failure(shell: Shell, undisturbed: Callable[[str], Path], how: str) -> None:
    stop = {"kill": lambda command: command.signal(signal.SIGKILL), "interrupt": lambda command: command.interrupt()}
    assert_resumed(*resume(shell, "driver_failure.py", stop[how]))
    assert_same_run(shell.storage / "stopped", undisturbed("driver_failure.py"))


def test_auto_resume(shell: Shell, undisturbed: Callable[[str], Path]) -> None:
    first, second = resume(shell, "auto_resume.py", lambda command: command.signal(signal.SIGKILL))
    assert "starting " in first
    assert "restoring " in second
    assert_resumed(first, second)
    # The two examples train the same thing.
    assert_same_run(shell.storage / "stopped", undisturbed("driver_failure.py"))
