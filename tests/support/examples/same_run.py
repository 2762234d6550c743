"""Holds the run of an example that something happened to against one that nothing happened to."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import torch

from holdfast import train
from support.examples.example_shell import Command


def history(run: Path) -> list[tuple[int, str]]:
    frame = train.Result.from_path(str(run)).metrics_dataframe
    return [(int(epoch), float(loss).hex()) for epoch, loss in zip(frame["epoch"], frame["loss"], strict=True)]


def checkpoint_directory(run: Path) -> Path:
    return Path(train.Result.from_path(str(run)).checkpoint.path)


def assert_same_state(first: Any, second: Any) -> None:
    assert type(first) is type(second)
    if isinstance(first, torch.Tensor):
        assert torch.equal(first, second)
    elif isinstance(first, dict):
        assert first.keys() == second.keys()
        for key in first:
            assert_same_state(first[key], second[key])
    elif isinstance(first, list | tuple):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_same_state(one, other)
    else:
        assert first == second


def assert_same_run(run: Path, reference: Path) -> None:
    assert history(run) == history(reference)
    files = [sorted(file.name for file in checkpoint_directory(path).iterdir()) for path in (run, reference)]
    assert files[0] == files[1]
    for name in files[0]:
        if name.endswith(".pt"):
            assert_same_state(
                torch.load(checkpoint_directory(run) / name), torch.load(checkpoint_directory(reference) / name)
            )


def kill_worker(command: Command, rank: int, epoch: int, after: int = 0) -> int:
    """SIGKILL a rank once it has done an epoch. Returns how much of the output there was by then."""
    match = command.wait_for(rf"\(rank {rank}\) pid (\d+): epoch {epoch}\b", after)
    os.kill(int(match.group(1)), signal.SIGKILL)
    return match.end()
