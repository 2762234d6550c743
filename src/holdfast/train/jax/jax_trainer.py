"""``JaxTrainer``: a trainer whose workers are the processes of one JAX program."""

from __future__ import annotations

from typing import Any

from holdfast.train.integrations import check_config
from holdfast.train.jax.jax_config import JaxConfig
from holdfast.train.payload import TrainFn
from holdfast.train.trainer import DataParallelTrainer


class JaxTrainer(DataParallelTrainer):
    """Runs ``train_loop_per_worker`` on every worker, after ``jax.distributed.initialize``: ``jax.devices()`` there are
    those of all workers. Import jax inside the function if it uses TPUs. The other arguments are those of
    ``DataParallelTrainer``."""

    config_argument = "jax_config"

    def __init__(
        self, train_loop_per_worker: TrainFn, *, jax_config: JaxConfig | None = None, **arguments: Any
    ) -> None:
        scaling = arguments.get("scaling_config")
        if jax_config is None and scaling is not None:
            jax_config = JaxConfig(use_tpu=scaling.use_tpu, use_gpu=scaling.use_gpu)
        config = check_config(type(self).__name__, self.config_argument, jax_config, JaxConfig)
        super().__init__(train_loop_per_worker, backend_config=config, **arguments)
