"""The Transformers ``Trainer`` inside a train function. Import it before ``holdfast.train.torch``, so that the snapshot
that workers are forked from has Transformers too."""

from __future__ import annotations

from holdfast.train.integrations import import_first, preload_in_workers, require

require(__name__, "transformers", "transformers")
require(__name__, "transformers", "accelerate")
preload_in_workers(import_first("transformers.trainer"), __name__)

import holdfast.train.torch  # noqa: E402, F401  takes the snapshot
from holdfast.train.huggingface.transformers.transformers_callback import (  # noqa: E402
    RayTrainReportCallback,
    TransformersReportCallback,
)
from holdfast.train.huggingface.transformers.transformers_loop import fit, prepare_trainer  # noqa: E402

__all__ = ["RayTrainReportCallback", "TransformersReportCallback", "fit", "prepare_trainer"]
