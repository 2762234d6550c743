"""The facts about a run's storage and nodes that the kernel needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Site:
    grows: bool  # nodes may join and leave, so there may be too little capacity
    keeps_files: bool  # a node that is lost comes back with its files, which are on this machine
    run_dir: Path  # of the run, or with remote storage where nodes have theirs for it; nothing is read or written here
    log_address: Callable[[int, int], str]  # of an attempt and a rank
    report_log: Callable[[int, int, str], Path | None]  # of an attempt and a rank on a node, if this machine has it
    lease_s: float = 0.0  # how long workers across a network may live when their driver has died
    staging_limit_gb: float = 0.0  # 0: half of the free space
    most_waiting: int = 64  # checkpoints that may wait for storage before workers do
