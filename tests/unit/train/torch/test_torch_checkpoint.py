from __future__ import annotations

from pathlib import Path

import pytest
import torch

from holdfast.train import Checkpoint
from holdfast.train.torch import TorchCheckpoint


def test_a_state_dict_comes_back_without_the_names_of_ddp() -> None:
    model, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    checkpoint = TorchCheckpoint.from_state_dict({f"module.{k}": v for k, v in model.state_dict().items()})
    assert isinstance(checkpoint, Checkpoint)
    assert torch.equal(checkpoint.get_model(other).weight, model.weight)
    with pytest.raises(ValueError, match="pass the model"):
        TorchCheckpoint(checkpoint.path).get_model()


def test_a_whole_model_comes_back() -> None:
    model = torch.nn.Linear(2, 1)
    assert torch.equal(TorchCheckpoint.from_model(model).get_model().weight, model.weight)


def test_other_files_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"has no model\.pt"):
        TorchCheckpoint(tmp_path).get_model()
