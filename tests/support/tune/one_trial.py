"""A trial by itself: a run of one worker that calls the entry with the config, as an experiment's trials do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import holdfast.train as train


def trainer(storage: Path, entry: Callable[[dict[str, Any]], Any], config: dict[str, Any], **options: Any) -> Any:
    run_config = train.RunConfig(**{"name": "trial", "storage_path": str(storage), "verbose": 0, **options})
    return train.DataParallelTrainer(entry, train_loop_config=config, run_config=run_config)


def run_trial(storage: Path, entry: Callable[[dict[str, Any]], Any], config: dict[str, Any], **options: Any) -> Any:
    return trainer(storage, entry, config, **options).fit()


def rows(result: train.Result) -> list[dict[str, Any]]:
    """The reports in their order."""
    assert result.metrics_dataframe is not None
    return result.metrics_dataframe.to_dict("records")  # type: ignore[no-any-return]
