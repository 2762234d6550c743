"""The name of the dataset for training, under the path that scripts from Ray import it from."""

from __future__ import annotations

from holdfast.train.data import TRAIN_DATASET_KEY as TRAIN_DATASET_KEY
