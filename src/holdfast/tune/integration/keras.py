"""Keras inside a trial: metrics and checkpoints as reports of the trial."""

from __future__ import annotations

from holdfast.train.boosting import Metrics
from holdfast.train.tensorflow.keras import KerasReportCallback as TuneReportCheckpointCallback

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback"]


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports metrics without a checkpoint. ``on`` names the events of Keras, such as ``"epoch_end"``."""

    def __init__(self, metrics: Metrics = None, on: str | list[str] = "epoch_end") -> None:
        super().__init__(checkpoint_on=[], report_metrics_on=on, metrics=metrics)
