"""Random numbers that a resumed run draws again exactly: states to save, and streams that are derived from a key.

A state is plain: ints, lists and tensors, which ``torch.load`` reads without pickled objects.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info

from holdfast.train.torch.order import derive
from holdfast.worker import session as sessions


def rng_state() -> dict[str, Any]:
    """Return the states of the generators of Python, NumPy, torch and this worker's GPUs. Each rank saves
    its own.
    """
    version, numbers, gauss = random.getstate()
    return {
        "python": [version, list(numbers), gauss],
        "numpy": _numpy_state(),
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state(device) for device in _gpus()],
    }


def set_rng_state(state: dict[str, Any]) -> None:
    """Restore the random number generators to the state that ``rng_state()`` returned."""
    missing = sorted({"python", "numpy", "torch", "cuda"} - state.keys())
    if missing:
        raise ValueError(
            f"set_rng_state(): the state has no {', '.join(missing)}. Pass the whole value that rng_state() returned"
        )
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    _set_numpy_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.init()
        for device, saved in zip(_gpus(), state["cuda"], strict=False):
            torch.cuda.set_rng_state(saved, device)


def seed_rng(*key: int | str) -> None:
    """Seed Python, NumPy, torch and CUDA by a key, as in ``seed_rng(seed, rank, step)``. Equal keys: equal numbers."""
    seed = derive("rng", *key)
    _seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


class SeededDataset(Dataset):  # type: ignore[misc]
    """A map-style dataset whose samples are created with generators seeded by (seed, epoch, index).

    Random augmentations then do not depend on the world size, on the number of loader workers, or on earlier random
    numbers. The epoch comes from the loader that ``prepare_data_loader`` returned.
    """

    def __init__(self, dataset: Any, seed: int = 0) -> None:
        self.dataset = dataset
        self.seed = seed

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, key: int | tuple[int, int]) -> Any:
        return self.__getitems__([key])[0]

    def __getitems__(self, keys: Sequence[int | tuple[int, int]]) -> list[Any]:
        pairs = [key if isinstance(key, tuple) else (0, key) for key in keys]
        if get_worker_info() is not None:
            return [self._sample(epoch, index) for epoch, index in pairs]
        # In the process that trains, the numbers of the training itself continue as if nothing had been loaded.
        before = random.getstate(), np.random.get_state(), torch.get_rng_state()
        try:
            return [self._sample(epoch, index) for epoch, index in pairs]
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])
            torch.set_rng_state(before[2])

    def _sample(self, epoch: int, index: int) -> Any:
        _seed(derive("sample", self.seed, epoch, index))
        return self.dataset[index]


def _seed(seed: int) -> None:
    """The generators of this process, not those of GPUs; quick, because it is done for each sample."""
    random.seed(seed)
    np.random.seed(seed >> 32)  # more bits than these would make it ten times slower
    torch.default_generator.manual_seed(seed)


def _numpy_state() -> list[Any]:
    state: Any = np.random.get_state()
    name, numbers, position, has_gauss, gauss = state
    return [name, numbers.tolist(), position, has_gauss, gauss]


def _set_numpy_state(state: Sequence[Any]) -> None:
    name, numbers, position, has_gauss, gauss = state
    np.random.set_state((name, np.array(numbers, dtype=np.uint32), position, has_gauss, gauss))


def _gpus() -> list[int]:
    """This worker's GPUs, in its own order: after a restart they may be others. None where CUDA is not in use."""
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return []
    try:
        return list(sessions.current().devices)
    except RuntimeError:
        return [torch.cuda.current_device()]
