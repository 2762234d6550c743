"""The request of a run's workers to an engine that manages a cluster."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Demand:
    """``labels`` are selectors, one for each worker; empty if any node fits. ``runtime_env`` is Ray's. ``by_request``:
    resources are requested in the course of the run, and not by this description of workers."""

    least: int = 1  # workers, without which the run cannot start
    most: int = 1
    resources: Mapping[str, float] = field(default_factory=lambda: {"CPU": 1.0})  # of one worker
    strategy: str = "PACK"
    labels: Sequence[Mapping[str, str]] = ()
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    by_request: bool = False
    idle_s: float = math.inf  # after which a node without our resources loses its agent
    standby: int = 0  # nodes without our resources that still have an agent, ready to take over

    @property
    def gpus(self) -> float:
        return self.resources.get("GPU", 0.0)

    def labels_of(self, worker: int) -> dict[str, str]:
        return dict(self.labels[worker % len(self.labels)]) if self.labels else {}
