"""``XGBoostTrainer``: a data-parallel trainer whose workers are in one collective of XGBoost."""

from __future__ import annotations

from typing import Any

from holdfast.train.integrations import check_config, refuse_old_arguments
from holdfast.train.payload import TrainFn
from holdfast.train.trainer import DataParallelTrainer
from holdfast.train.xgboost.xgboost_config import XGBoostConfig


class XGBoostTrainer(DataParallelTrainer):
    """Runs ``train_loop_per_worker`` on every worker, inside XGBoost's collective: ``xgboost.train`` there trains one
    model on the data of all workers. The other arguments are those of ``DataParallelTrainer``."""

    config_argument = "xgboost_config"

    def __init__(
        self, train_loop_per_worker: TrainFn, *, xgboost_config: XGBoostConfig | None = None, **arguments: Any
    ) -> None:
        refuse_old_arguments(type(self).__name__, arguments, "label_column", "params", "num_boost_round")
        config = check_config(type(self).__name__, self.config_argument, xgboost_config, XGBoostConfig)
        super().__init__(train_loop_per_worker, backend_config=config, **arguments)
