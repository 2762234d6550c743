"""XGBoost inside a trial: metrics and checkpoints as reports of the trial."""

from __future__ import annotations

from holdfast.train.boosting import Metrics
from holdfast.train.xgboost import XGBoostReportCallback as TuneReportCheckpointCallback

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback"]


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports metrics without a checkpoint."""

    def __init__(self, metrics: Metrics = None) -> None:
        super().__init__(metrics, checkpoint_at_end=False)
