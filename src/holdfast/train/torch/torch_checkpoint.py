"""A checkpoint that holds a torch model's weights."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, TypeVar

import torch

from holdfast.train.checkpoint import Checkpoint

_DDP = "module."
T = TypeVar("T", bound="TorchCheckpoint")


class TorchCheckpoint(Checkpoint):
    """A checkpoint with a state dict, or a whole model, in ``model.pt``."""

    MODEL_FILENAME = "model.pt"

    @classmethod
    def from_state_dict(cls: type[T], state_dict: dict[str, Any]) -> T:
        """Save a state dict to a new temporary directory, with the parameter names of the model without DDP."""
        bare = {name.removeprefix(_DDP): value for name, value in state_dict.items()}
        return cls._saved(bare)

    @classmethod
    def from_model(cls: type[T], model: torch.nn.Module) -> T:
        """Save the whole model as a pickle. Prefer ``from_state_dict``, which can be loaded safely."""
        return cls._saved(model)

    @classmethod
    def _saved(cls: type[T], what: Any) -> T:
        directory = tempfile.mkdtemp()
        torch.save(what, os.path.join(directory, cls.MODEL_FILENAME))
        return cls(directory)

    def get_model(self, model: torch.nn.Module | None = None) -> torch.nn.Module:
        """Return the model with the weights of the checkpoint.

        Without ``model``, a whole model is unpickled. That runs code, so the checkpoint must come from someone you
        trust.
        """
        with self.as_directory() as directory:
            file = Path(directory, self.MODEL_FILENAME)
            if not file.exists():
                raise RuntimeError(
                    f"{self!r} has no {self.MODEL_FILENAME}: create it with TorchCheckpoint.from_state_dict()"
                )
            saved = torch.load(file, map_location="cpu", weights_only=model is not None)
        if isinstance(saved, torch.nn.Module):
            return saved
        if model is None:
            raise ValueError("get_model(): the checkpoint has a state dict; pass the model to load it into")
        model.load_state_dict({name.removeprefix(_DDP): value for name, value in saved.items()})
        return model
