"""What libraries in a worker of Ray Train rely on, beside the API."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast import train
from holdfast.train.torch import TorchTrainer, get_device


def test_accelerate_uses_the_worker_s_device(tmp_path: Path) -> None:
    def train_fn() -> tuple[str, str]:
        return os.environ["ACCELERATE_TORCH_DEVICE"], str(get_device())

    run = train.RunConfig(storage_path=str(tmp_path), name="device", verbose=0)
    assert TorchTrainer(train_fn, run_config=run).fit().return_value == ("cpu", "cpu")
    assert "ACCELERATE_TORCH_DEVICE" not in os.environ
