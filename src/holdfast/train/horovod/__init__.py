"""Horovod over the workers of a run: ``hvd.init()`` in the train function finds the others."""

from __future__ import annotations

from holdfast.engine.prefork import prefork
from holdfast.train.integrations import preload_in_workers, require

require(__name__, "horovod", "horovod")

from holdfast.train.horovod.horovod_config import HorovodConfig  # noqa: E402
from holdfast.train.horovod.horovod_trainer import HorovodTrainer  # noqa: E402

__all__ = ["HorovodConfig", "HorovodTrainer"]

preload_in_workers(__name__)
prefork(HorovodConfig.essential, ["holdfast.train.payload", "holdfast.train.api", __name__], slow=HorovodConfig.preload)
