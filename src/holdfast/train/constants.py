"""The names of datasets and the default storage, under the path that scripts from Ray import it from."""

from __future__ import annotations

import os

from holdfast import settings
from holdfast.train.data import TRAIN_DATASET_KEY as TRAIN_DATASET_KEY
from holdfast.train.ray_variables import CHDIR_TO_TRIAL_DIR as RAY_CHDIR_TO_TRIAL_DIR

__all__ = [
    "DEFAULT_STORAGE_PATH",
    "EVALUATION_DATASET_KEY",
    "MODEL_KEY",
    "PREPROCESSOR_KEY",
    "RAY_CHDIR_TO_TRIAL_DIR",
    "TRAIN_DATASET_KEY",
]
DEFAULT_STORAGE_PATH = os.path.expanduser(settings.load().storage_path)
EVALUATION_DATASET_KEY, MODEL_KEY, PREPROCESSOR_KEY = "evaluation", "model", "_preprocessor"
