"""A checkpoint that holds a Keras model."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any

import tensorflow as tf

from holdfast.train.checkpoint import Checkpoint


class TensorflowCheckpoint(Checkpoint):
    """A checkpoint with a whole Keras model, including its optimizer. Its metadata names the file."""

    MODEL_FILENAME_KEY = "_model_filename"
    MODEL_FILENAME = "model.keras"

    @classmethod
    def from_model(cls, model: Any) -> TensorflowCheckpoint:
        """Save the model into a new temporary directory."""
        directory = tempfile.mkdtemp()
        model.save(os.path.join(directory, cls.MODEL_FILENAME))
        return cls._of(directory, cls.MODEL_FILENAME)

    @classmethod
    def from_h5(cls, file_path: str) -> TensorflowCheckpoint:
        """Create a checkpoint from an ``.h5`` file that ``model.save`` wrote. The file is copied."""
        if not os.path.isfile(file_path) or not file_path.endswith(".h5"):
            raise ValueError(f"TensorflowCheckpoint.from_h5({file_path!r}): pass the path of an .h5 file")
        directory = tempfile.mkdtemp()
        shutil.copy(file_path, directory)
        return cls._of(directory, os.path.basename(file_path))

    @classmethod
    def from_saved_model(cls, dir_path: str) -> TensorflowCheckpoint:
        """Create a checkpoint from a directory in TensorFlow's SavedModel format. The directory is copied."""
        if not os.path.isdir(dir_path):
            raise ValueError(f"TensorflowCheckpoint.from_saved_model({dir_path!r}): pass a directory")
        directory = tempfile.mkdtemp()
        shutil.copytree(dir_path, directory, dirs_exist_ok=True)
        return cls._of(directory, ".")

    @classmethod
    def _of(cls, directory: str, file: str) -> TensorflowCheckpoint:
        checkpoint = cls(directory)
        checkpoint.set_metadata({cls.MODEL_FILENAME_KEY: file})
        return checkpoint

    def get_model(self) -> Any:
        """Return the Keras model."""
        file = self.get_metadata().get(self.MODEL_FILENAME_KEY, self.MODEL_FILENAME)
        with self.as_directory() as directory:
            path = os.path.join(directory, file)
            return tf.saved_model.load(path) if file == "." else tf.keras.models.load_model(path)
