"""What libraries in a worker of Ray Train rely on, beside the API."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast import train
from holdfast.train.torch import TorchTrainer, get_device


def test_accelerate_uses_the_worker_s_device(tmp_path: Path) -> None:
    """On CPUs it ignores the process group unless it is told to use them."""

    def train_fn() -> tuple[str, str, str]:
        return os.environ["ACCELERATE_TORCH_DEVICE"], os.environ["ACCELERATE_USE_CPU"], str(get_device())

    run = train.RunConfig(storage_path=str(tmp_path), name="device", verbose=0)
    assert TorchTrainer(train_fn, run_config=run).fit().return_value == ("cpu", "true", "cpu")
    assert {"ACCELERATE_TORCH_DEVICE", "ACCELERATE_USE_CPU"}.isdisjoint(os.environ)


def test_what_the_user_says_to_accelerate_holds(tmp_path: Path) -> None:
    def train_fn() -> str:
        return os.environ["ACCELERATE_USE_CPU"]

    variables = {"env_vars": {"ACCELERATE_USE_CPU": "false"}}
    run = train.RunConfig(storage_path=str(tmp_path), name="own", verbose=0, worker_runtime_env=variables)
    assert TorchTrainer(train_fn, run_config=run).fit().return_value == "false"
