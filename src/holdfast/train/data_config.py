"""``DataConfig``: which worker gets what of the trainer's datasets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from holdfast.train.data import Configuration, Configured, Streamed, Whole, is_dataset
from holdfast.train.ray_data import RayData, is_ray_data


class DataConfig:
    """Which of the trainer's datasets are split among the workers. Each worker gets the whole of the other datasets.

    ``execution_options`` is an ``ExecutionOptions``, or a dict of them by dataset. ``enable_shard_locality`` is for Ray
    Data. Override ``configure`` in a subclass to decide what each worker gets.
    """

    def __init__(
        self,
        datasets_to_split: Literal["all"] | list[str] = "all",
        execution_options: Any = None,
        enable_shard_locality: bool = True,
    ) -> None:
        names = [] if datasets_to_split == "all" else datasets_to_split
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise TypeError(
                f'DataConfig(datasets_to_split={datasets_to_split!r}): pass "all" or a list of names of datasets'
            )
        self.datasets_to_split = datasets_to_split
        self.execution_options = execution_options
        self.enable_shard_locality = enable_shard_locality

    def check(self, datasets: Mapping[str, Any]) -> None:
        """Check that the datasets to split exist: a misspelled name would leave a dataset whole."""
        unknown = [] if self.datasets_to_split == "all" else sorted(set(self.datasets_to_split) - set(datasets))
        if unknown and datasets:
            raise ValueError(
                f"DataConfig(datasets_to_split={self.datasets_to_split!r}): the trainer has no dataset "
                f"{', '.join(map(repr, unknown))}; it has {', '.join(map(repr, sorted(datasets)))}"
            )

    def mark(self, datasets: Mapping[str, Any]) -> dict[str, Any]:
        """The datasets for workers: those that are not split are marked as ``Whole``, and those that only the driver
        has as ``RayData``."""
        if self.is_custom and not all(map(is_ray_data, datasets.values())):
            source = Configuration(self, datasets)
            return {name: Configured(name, source) for name in datasets}
        return {name: self._marked(name, data) for name, data in datasets.items()}

    @property
    def is_custom(self) -> bool:
        """Whether the user wrote ``configure``."""
        return type(self).configure is not DataConfig.configure

    def configure(
        self,
        datasets: Mapping[str, Any],
        world_size: int,
        worker_handles: Any = None,
        worker_node_ids: list[str] | None = None,
        **kwargs: Any,
    ) -> list[dict[str, Any]]:
        """Return, for each worker, an iterator by the name of each dataset. Override it to split datasets in another
        way.

        It is called in every worker, again after a change of their number, and must return the same everywhere. For
        datasets of Ray Data it is called in the driver. ``worker_handles`` is None.
        """
        whole = {name: data for name, data in datasets.items() if not self.is_split(name)}
        hints = worker_node_ids if self.enable_shard_locality else None
        parts = {
            name: data.streaming_split(world_size, equal=is_ray_data(data), locality_hints=hints)
            for name, data in datasets.items()
            if name not in whole
        }
        return [
            {name: whole[name].iterator() if name in whole else parts[name][rank] for name in datasets}
            for rank in range(world_size)
        ]

    @staticmethod
    def default_ingest_options() -> Any:
        """Return a copy of the ``execution_options`` of the current ``DataContext``, which you may change."""
        from holdfast.data import DataContext

        return DataContext.get_current().copy().execution_options

    def is_split(self, name: str) -> bool:
        """Return whether this dataset is split among the workers."""
        return self.datasets_to_split == "all" or name in self.datasets_to_split

    def _marked(self, name: str, data: Any) -> Any:
        if is_ray_data(data):
            return RayData(name)
        if is_dataset(data):
            options = self.execution_options
            return Streamed(data, self.is_split(name), options.get(name) if isinstance(options, Mapping) else options)
        return data if self.is_split(name) else Whole(data)
