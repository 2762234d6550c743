"""TensorFlow over the workers of a run: ``MultiWorkerMirroredStrategy`` finds them automatically."""

from __future__ import annotations

from holdfast.engine.prefork import prefork
from holdfast.train.integrations import preload_in_workers, require

require(__name__, "tensorflow", "tensorflow")

from holdfast.train.tensorflow.tensorflow_checkpoint import TensorflowCheckpoint  # noqa: E402
from holdfast.train.tensorflow.tensorflow_config import TensorflowConfig  # noqa: E402
from holdfast.train.tensorflow.tensorflow_data import prepare_dataset_shard  # noqa: E402
from holdfast.train.tensorflow.tensorflow_trainer import TensorflowTrainer  # noqa: E402

__all__ = ["TensorflowCheckpoint", "TensorflowConfig", "TensorflowTrainer", "prepare_dataset_shard"]

preload_in_workers(__name__, f"{__name__}.keras")
prefork(
    TensorflowConfig.essential, [*TensorflowConfig.preload, "holdfast.train.payload", "holdfast.train.api", __name__]
)
