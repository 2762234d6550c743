"""A checkpoint that holds an XGBoost model."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import xgboost

from holdfast.train.checkpoint import Checkpoint


class XGBoostCheckpoint(Checkpoint):
    """A checkpoint with a booster in ``model.json``."""

    MODEL_FILENAME = "model.json"

    @classmethod
    def from_model(cls, booster: Any, *, path: str | None = None) -> XGBoostCheckpoint:
        """Save the booster into an empty directory, or a new temporary one."""
        directory = path or tempfile.mkdtemp()
        booster.save_model(os.path.join(directory, cls.MODEL_FILENAME))
        return cls(directory)

    def get_model(self) -> Any:
        """Return the booster."""
        with self.as_directory() as directory:
            return xgboost.Booster(model_file=os.path.join(directory, self.MODEL_FILENAME))
