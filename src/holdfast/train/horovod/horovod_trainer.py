"""``HorovodTrainer``: a data-parallel trainer whose workers are one Horovod job."""

from __future__ import annotations

from typing import Any

from holdfast.train.horovod.horovod_config import HorovodConfig
from holdfast.train.integrations import check_config
from holdfast.train.payload import TrainFn
from holdfast.train.trainer import DataParallelTrainer


class HorovodTrainer(DataParallelTrainer):
    """Runs ``train_loop_per_worker`` on every worker, where ``hvd.init()`` joins them to one Horovod job, over gloo.
    The other arguments are those of ``DataParallelTrainer``."""

    config_argument = "horovod_config"

    def __init__(
        self, train_loop_per_worker: TrainFn, *, horovod_config: HorovodConfig | None = None, **arguments: Any
    ) -> None:
        config = check_config(type(self).__name__, self.config_argument, horovod_config, HorovodConfig)
        super().__init__(train_loop_per_worker, backend_config=config, **arguments)
