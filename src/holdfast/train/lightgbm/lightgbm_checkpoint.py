"""A checkpoint that holds a LightGBM model."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import lightgbm

from holdfast.train.checkpoint import Checkpoint


class LightGBMCheckpoint(Checkpoint):
    """A checkpoint with a booster in ``model.txt``."""

    MODEL_FILENAME = "model.txt"

    @classmethod
    def from_model(cls, booster: Any, *, path: str | None = None) -> LightGBMCheckpoint:
        """Save the booster into an empty directory, or a new temporary one."""
        directory = path or tempfile.mkdtemp()
        booster.save_model(os.path.join(directory, cls.MODEL_FILENAME))
        return cls(directory)

    def get_model(self) -> Any:
        """Return the booster."""
        with self.as_directory() as directory:
            return lightgbm.Booster(model_file=os.path.join(directory, self.MODEL_FILENAME))
