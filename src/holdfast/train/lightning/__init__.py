"""PyTorch Lightning inside a train function. Import it before ``holdfast.train.torch``, so that the snapshot that
workers are forked from has Lightning too."""

from __future__ import annotations

from holdfast.train.integrations import import_first, preload_in_workers, require

require(__name__, "lightning", "lightning", "pytorch_lightning")
preload_in_workers(import_first("lightning.pytorch", "pytorch_lightning"), __name__)

import holdfast.train.torch  # noqa: E402, F401  takes the snapshot
from holdfast.train.lightning.lightning_callback import LightningReportCallback, RayTrainReportCallback, fit  # noqa: E402
from holdfast.train.lightning.strategies import (  # noqa: E402
    HoldfastDDPStrategy,
    HoldfastDeepSpeedStrategy,
    HoldfastEnvironment,
    HoldfastFSDPStrategy,
    RayDDPStrategy,
    RayDeepSpeedStrategy,
    RayFSDPStrategy,
    RayLightningEnvironment,
    prepare_trainer,
)

__all__ = [
    "HoldfastDDPStrategy",
    "HoldfastDeepSpeedStrategy",
    "HoldfastEnvironment",
    "HoldfastFSDPStrategy",
    "RayDDPStrategy",
    "RayDeepSpeedStrategy",
    "RayFSDPStrategy",
    "RayLightningEnvironment",
    "RayTrainReportCallback",
    "LightningReportCallback",
    "fit",
    "prepare_trainer",
]
