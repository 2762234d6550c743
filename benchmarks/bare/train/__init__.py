"""What one writes by hand to run a job under torchrun: a checkpoint is copied beside the last one and renamed over it.

It has just the names that the jobs use.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_run: dict[str, str] = {}


@dataclass
class ScalingConfig:
    num_workers: int = 1


@dataclass
class FailureConfig:
    max_failures: int = 0  # torchrun's --max-restarts decides


@dataclass
class CheckpointConfig:
    num_to_keep: int | None = None


@dataclass
class RunConfig:
    name: str
    storage_path: str
    failure_config: FailureConfig = field(default_factory=FailureConfig)
    checkpoint_config: CheckpointConfig = field(default_factory=CheckpointConfig)


@dataclass(frozen=True)
class Checkpoint:
    path: str

    @classmethod
    def from_directory(cls, path: str) -> Checkpoint:
        return cls(path)

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        yield self.path


class Context:
    def get_world_rank(self) -> int:
        return int(os.environ["RANK"])


def get_context() -> Context:
    return Context()


def open_run(config: RunConfig) -> None:
    _run["latest"] = os.path.join(config.storage_path, config.name, "latest")


def get_checkpoint() -> Checkpoint | None:
    latest = _run["latest"]
    return Checkpoint(os.path.realpath(latest)) if os.path.exists(latest) else None


def report(metrics: dict[str, Any], checkpoint: Checkpoint | None = None) -> None:
    if checkpoint is None:
        return
    latest = _run["latest"]
    target = f"{latest}-{metrics['step']}"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(checkpoint.path, target)
    previous = os.path.realpath(latest) if os.path.exists(latest) else None
    os.symlink(target, f"{latest}.new")
    os.rename(f"{latest}.new", latest)
    if previous and previous != os.path.realpath(target):
        shutil.rmtree(previous)
