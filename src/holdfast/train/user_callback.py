"""Callbacks of the user. They run in the driver, never in a worker, one after the other in the order given."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.train.checkpoint import Checkpoint
    from holdfast.train.config import BackendConfig, DataConfig, RunConfig
    from holdfast.train.scaling_config import ScalingConfig


@dataclass
class TrainRunContext:
    """The run that a callback is called for."""

    run_config: RunConfig
    train_loop_config: dict[str, Any] | None
    scaling_config: ScalingConfig
    backend_config: BackendConfig
    dataset_config: DataConfig
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def get_run_config(self) -> RunConfig:
        """The same as ``run_config``."""
        return self.run_config


class UserCallback:
    """Subclass it, override what you need, and pass instances to ``RunConfig(callbacks=[...])``."""

    def after_report(
        self, run_context: TrainRunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """All ranks have made a report: ``metrics[i]`` is rank i's, ``checkpoint`` is committed, None if none came."""

    def after_exception(self, run_context: TrainRunContext, worker_exceptions: dict[int, Exception]) -> None:
        """Workers have failed: their exceptions by world rank."""
