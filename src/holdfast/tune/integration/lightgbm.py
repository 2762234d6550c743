"""LightGBM inside a trial: metrics and checkpoints as reports of the trial."""

from holdfast.train.lightgbm.lightgbm_callback import LightGBMReportCallback as TuneReportCheckpointCallback

__all__ = ["TuneReportCheckpointCallback"]
