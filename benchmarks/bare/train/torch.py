"""A process group around the train function, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed

import bare.train


class TorchTrainer:
    def __init__(
        self,
        train_loop_per_worker: Callable[[dict[str, Any]], None],
        *,
        train_loop_config: dict[str, Any],
        scaling_config: bare.train.ScalingConfig,
        run_config: bare.train.RunConfig,
    ) -> None:
        self._train, self._config, self._run = train_loop_per_worker, train_loop_config, run_config
        del scaling_config  # torchrun's --nproc-per-node decides

    def fit(self) -> None:
        join_group()
        bare.train.open_run(self._run)
        self._train(self._config)
        torch.distributed.destroy_process_group()


def join_group() -> None:
    """Join the group below a prefix for each restart.

    Plain init_process_group("gloo") finds the addresses of the dead workers in the agent's store, and fails or hangs.
    """
    environment = os.environ
    world_size = int(environment["WORLD_SIZE"])
    address = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    agent_store = torch.distributed.TCPStore(*address, world_size, is_master=False)
    store = torch.distributed.PrefixStore(environment["TORCHELASTIC_RESTART_COUNT"], agent_store)
    torch.distributed.init_process_group("gloo", store=store, rank=int(environment["RANK"]), world_size=world_size)


def prepare_model(model: torch.nn.Module) -> torch.nn.Module:
    return torch.nn.parallel.DistributedDataParallel(model)
