"""A trial as loggers and reporters see it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class LoggedTrial:
    trial_id: str = "t1"
    config: dict[str, Any] = field(default_factory=lambda: {"lr": 0.1, "layers": {"units": 8}})
    evaluated_params: dict[str, Any] = field(default_factory=lambda: {"lr": 0.1, "layers/units": 8})
    status: str = "RUNNING"
    last_result: dict[str, Any] = field(default_factory=dict)
    local_path: str = ""
    checkpoint: Any = None
    error: str | None = None

    def __str__(self) -> str:
        return f"train_{self.trial_id}"


def result(iteration: int, **metrics: Any) -> dict[str, Any]:
    return {"training_iteration": iteration, "time_total_s": iteration * 1.5, **metrics}
