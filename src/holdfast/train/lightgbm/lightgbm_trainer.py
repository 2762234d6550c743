"""``LightGBMTrainer``: a data-parallel trainer whose workers are in one network of LightGBM."""

from __future__ import annotations

from typing import Any

from holdfast.train.integrations import check_config, refuse_old_arguments
from holdfast.train.lightgbm.lightgbm_config import LightGBMConfig
from holdfast.train.payload import TrainFn
from holdfast.train.trainer import DataParallelTrainer


class LightGBMTrainer(DataParallelTrainer):
    """Runs ``train_loop_per_worker`` on every worker: ``lightgbm.train`` with the parameters of
    ``get_network_params()`` trains one model on the data of all workers. The other arguments are those of
    ``DataParallelTrainer``."""

    config_argument = "lightgbm_config"

    def __init__(
        self, train_loop_per_worker: TrainFn, *, lightgbm_config: LightGBMConfig | None = None, **arguments: Any
    ) -> None:
        refuse_old_arguments(type(self).__name__, arguments, "label_column", "params", "num_boost_round")
        config = check_config(type(self).__name__, self.config_argument, lightgbm_config, LightGBMConfig)
        super().__init__(train_loop_per_worker, backend_config=config, **arguments)
