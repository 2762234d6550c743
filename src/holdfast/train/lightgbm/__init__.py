"""LightGBM over the workers of a run: each has its part of the data, and all build the same trees."""

from __future__ import annotations

from holdfast.engine.prefork import prefork
from holdfast.train.integrations import preload_in_workers, require

require(__name__, "lightgbm", "lightgbm")

from holdfast.train.lightgbm.lightgbm_callback import (  # noqa: E402
    LightGBMReportCallback,
    RayTrainReportCallback,
    remaining_rounds,
)
from holdfast.train.lightgbm.lightgbm_checkpoint import LightGBMCheckpoint  # noqa: E402
from holdfast.train.lightgbm.lightgbm_config import LightGBMConfig, get_network_params  # noqa: E402
from holdfast.train.lightgbm.lightgbm_data import normalize_pandas_for_lightgbm  # noqa: E402
from holdfast.train.lightgbm.lightgbm_trainer import LightGBMTrainer  # noqa: E402

__all__ = [
    "LightGBMCheckpoint",
    "LightGBMConfig",
    "LightGBMReportCallback",
    "LightGBMTrainer",
    "RayTrainReportCallback",
    "get_network_params",
    "normalize_pandas_for_lightgbm",
    "remaining_rounds",
]

preload_in_workers(__name__)
prefork(LightGBMConfig.essential, ["holdfast.train.payload", "holdfast.train.api", __name__])
