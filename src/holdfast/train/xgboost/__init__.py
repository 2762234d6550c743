"""XGBoost over the workers of a run: each has its part of the data, and all build the same trees."""

from __future__ import annotations

from holdfast.engine.prefork import prefork
from holdfast.train.integrations import preload_in_workers, require

require(__name__, "xgboost", "xgboost")

from holdfast.train.xgboost.xgboost_callback import (  # noqa: E402
    RayTrainReportCallback,
    XGBoostReportCallback,
    remaining_rounds,
)
from holdfast.train.xgboost.xgboost_checkpoint import XGBoostCheckpoint  # noqa: E402
from holdfast.train.xgboost.xgboost_config import XGBoostConfig  # noqa: E402
from holdfast.train.xgboost.xgboost_trainer import XGBoostTrainer  # noqa: E402

__all__ = [
    "RayTrainReportCallback",
    "XGBoostCheckpoint",
    "XGBoostConfig",
    "XGBoostReportCallback",
    "XGBoostTrainer",
    "remaining_rounds",
]

preload_in_workers(__name__)
prefork(XGBoostConfig.essential, ["holdfast.train.payload", "holdfast.train.api", __name__])
