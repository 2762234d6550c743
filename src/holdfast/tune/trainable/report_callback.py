"""For a trainer inside of a trial: what its workers report becomes the trial's own report."""

from __future__ import annotations

from typing import Any

from holdfast.train.api import report, session_for
from holdfast.train.callback import TrainRunContext, UserCallback
from holdfast.train.checkpoint import Checkpoint

CHECKPOINT_PATH_KEY = "checkpoint_path"


class TuneReportCallback(UserCallback):
    """Pass it to the inner trainer's ``RunConfig(callbacks=[...])``. Rank 0's metrics are reported; a checkpoint stays
    in the inner run's storage, and its path is in the metrics as ``checkpoint_path``."""

    def __init__(self) -> None:
        session_for("TuneReportCallback")

    def after_report(
        self, run_context: TrainRunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        told = dict(metrics[0])
        if checkpoint is not None:
            told[CHECKPOINT_PATH_KEY] = checkpoint.path
        report(told)
