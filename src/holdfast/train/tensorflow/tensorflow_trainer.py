"""``TensorflowTrainer``: a data-parallel trainer whose workers are one TensorFlow cluster."""

from __future__ import annotations

from typing import Any

from holdfast.train.integrations import check_config
from holdfast.train.payload import TrainFn
from holdfast.train.tensorflow.tensorflow_config import TensorflowConfig
from holdfast.train.trainer import DataParallelTrainer


class TensorflowTrainer(DataParallelTrainer):
    """Runs ``train_loop_per_worker`` on every worker, with ``TF_CONFIG`` set for ``tf.distribute``'s
    ``MultiWorkerMirroredStrategy``. The other arguments are those of ``DataParallelTrainer``."""

    config_argument = "tensorflow_config"

    def __init__(
        self, train_loop_per_worker: TrainFn, *, tensorflow_config: TensorflowConfig | None = None, **arguments: Any
    ) -> None:
        config = check_config(type(self).__name__, self.config_argument, tensorflow_config, TensorflowConfig)
        super().__init__(train_loop_per_worker, backend_config=config, **arguments)
