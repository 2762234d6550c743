"""XGBoost inside a trial: metrics and checkpoints as reports of the trial."""

from holdfast.train.xgboost.xgboost_callback import XGBoostReportCallback as TuneReportCheckpointCallback

__all__ = ["TuneReportCheckpointCallback"]
