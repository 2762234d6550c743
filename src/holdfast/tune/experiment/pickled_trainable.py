"""The trainable of an experiment, pickled once for all trials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle

from holdfast.train.ray_datasets import pickled_for_workers


class PickledTrainable:
    def __init__(self, entry: Callable[[dict[str, Any]], Any]) -> None:
        try:
            self._data = pickled_for_workers(entry)
        except Exception as error:
            raise TypeError(
                f"the trainable cannot be sent to trials: {error}. It must not hold locks, open files, sockets or "
                "running threads: make those inside it, or pass large objects with tune.with_parameters"
            ) from error

    def __call__(self, config: dict[str, Any]) -> Any:
        return cloudpickle.loads(self._data)(config)
