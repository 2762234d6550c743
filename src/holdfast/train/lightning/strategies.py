"""Lightning's strategies and environment for a worker: ranks, device and process group are the ones that it has."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from holdfast.data.batch_iterables import Repeatable
from holdfast.train.api import get_context
from holdfast.train.data import is_shard
from holdfast.train.lightning.lightning_modules import LightningEnvironment, pl
from holdfast.train.lightning.shard_loader import ShardLoader
from holdfast.train.torch.elastic import ElasticLoader
from holdfast.train.torch.loop import get_device
from holdfast.train.torch.resumable import is_resumable, make_resumable


class _WorkerStrategy:
    """What the strategies have in common."""

    resumed_random: Any = None  # of this rank, from the checkpoint that training resumes from
    resumed_loaders: list[Any] | None = None  # their states there, in Lightning's order

    _environment: HoldfastEnvironment | None = None

    @property
    def cluster_environment(self) -> HoldfastEnvironment | None:
        return self._environment

    @cluster_environment.setter
    def cluster_environment(self, environment: Any) -> None:
        """Without a plugin, Lightning guesses one from variables such as those of Slurm. The ranks of a worker come
        from the run."""
        known = environment is None or isinstance(environment, HoldfastEnvironment)
        self._environment = environment if known else HoldfastEnvironment()

    @property
    def root_device(self) -> torch.device:
        return get_device()

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        context = get_context()
        return {"num_replicas": context.get_world_size(), "rank": context.get_world_rank()}

    def process_dataloader(self, dataloader: object) -> object:
        loader: object = super().process_dataloader(dataloader)  # type: ignore[misc]
        trainer = self.lightning_module.trainer  # type: ignore[attr-defined]
        if trainer.state.fn != "fit":
            return loader

        def epoch_is_over() -> bool:
            return bool(trainer.fit_loop.epoch_loop.batch_progress.is_last_batch)

        # Such a step fetches its batches itself, after on_train_batch_start.
        step = self.lightning_module.training_step  # type: ignore[attr-defined]
        waits = "dataloader_iter" not in inspect.signature(step).parameters
        if isinstance(loader, Repeatable) and is_shard(loader.shard):
            loader = ShardLoader(loader, epoch_is_over, waits)
        else:
            loader = make_resumable(loader, epoch_is_over, self._take_random, waits)
        if self.resumed_loaders and hasattr(loader, "state_dict") and not trainer.sanity_checking:
            self._resume_early(loader, self.resumed_loaders.pop(0))
        return loader

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        for loader in tree_leaves(self.lightning_module.trainer.train_dataloader):  # type: ignore[attr-defined]
            if isinstance(loader, ShardLoader) or is_resumable(loader):
                loader.take()
        super().on_train_batch_start(batch, batch_idx)  # type: ignore[misc]

    def _resume_early(self, loader: object, state: Any) -> None:
        """Lightning asks for the number of batches before it loads the loader's state. After a change of the number of
        workers, that state says how large a batch is. Lightning also does not load the state of a loader that has ended
        its epoch, although the state of a shard names the next epoch."""
        if isinstance(loader, ElasticLoader | ShardLoader):
            loader.load_state_dict(state)

    def _take_random(self) -> Any:
        taken, self.resumed_random = self.resumed_random, None
        return taken


class HoldfastDDPStrategy(_WorkerStrategy, pl.strategies.DDPStrategy):  # type: ignore[misc]
    """Lightning's ``DDPStrategy`` in the process group of the workers. It takes the same arguments. Set backend and
    timeout with ``TorchConfig``."""


class HoldfastFSDPStrategy(_WorkerStrategy, pl.strategies.FSDPStrategy):  # type: ignore[misc]
    """Lightning's ``FSDPStrategy`` in the process group of the workers. It takes the same arguments."""


class HoldfastDeepSpeedStrategy(_WorkerStrategy, pl.strategies.DeepSpeedStrategy):  # type: ignore[misc]
    """Lightning's ``DeepSpeedStrategy`` in the process group of the workers. It takes the same arguments."""


class HoldfastEnvironment(LightningEnvironment):  # type: ignore[misc]
    """Tells Lightning which worker this is. The strategies use it by themselves; scripts for Ray also pass it as a
    plugin."""

    @property
    def creates_processes_externally(self) -> bool:
        return True

    def world_size(self) -> int:
        return get_context().get_world_size()

    def global_rank(self) -> int:
        return get_context().get_world_rank()

    def local_rank(self) -> int:
        return get_context().get_local_rank()

    def node_rank(self) -> int:
        return get_context().get_node_rank()

    def set_world_size(self, size: int) -> None:
        """The run decides."""

    def set_global_rank(self, rank: int) -> None:
        """The run decides."""

    def teardown(self) -> None:
        """The variables of the process group belong to the worker."""


RayDDPStrategy = HoldfastDDPStrategy
RayFSDPStrategy = HoldfastFSDPStrategy
RayDeepSpeedStrategy = HoldfastDeepSpeedStrategy
RayLightningEnvironment = HoldfastEnvironment
_STRATEGIES = (HoldfastDDPStrategy, HoldfastFSDPStrategy, HoldfastDeepSpeedStrategy)


def prepare_trainer(trainer: Any) -> Any:
    """Check that a ``lightning.Trainer`` uses one of these strategies, and return the trainer."""
    if not isinstance(trainer.strategy, _STRATEGIES):
        names = ", ".join(f"{strategy.__name__}()" for strategy in _STRATEGIES)
        raise RuntimeError(
            f"prepare_trainer(): the strategy is {type(trainer.strategy).__name__}, which would form a process group "
            f"of its own. Pass Trainer(strategy=...) one of {names}."
        )
    return trainer
