"""What came of a run. It is read from the run's own files, so ``fit()`` and ``Result.from_path()`` say the same."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.core.metric_names import AUTO_KEYS, flat_items, lookup, number
from holdfast.errors import TrainingFailedError
from holdfast.printable import encodable_row
from holdfast.store.location import Location
from holdfast.train.checkpoint import Checkpoint

if TYPE_CHECKING:
    from holdfast.runs.reading import Reading


class Result:
    """The outcome of ``trainer.fit()``.

    metrics: the last report of rank 0 in the surviving history, with the results of its checkpoint's validation.
    checkpoint: the latest committed checkpoint. best_checkpoints: all that were kept, with their metrics; the last one
    is the best if ``CheckpointConfig`` has a score, otherwise the newest. error: why the run failed, None if it did
    not. path: the run's directory or URL. config: the train function's configuration. return_value: its return value on
    rank 0. ledger: where the wall-clock time went.
    """

    def __init__(
        self,
        *,
        metrics: dict[str, Any] | None = None,
        checkpoint: Checkpoint | None = None,
        error: TrainingFailedError | None = None,
        path: str = "",
        rows: Sequence[dict[str, Any]] | Callable[[], Sequence[dict[str, Any]]] = (),
        best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]] | None = None,
        config: dict[str, Any] | None = None,
        return_value: Any = None,
        filesystem: Any = None,
        ledger: Any = None,
    ) -> None:
        self.metrics = metrics
        self.checkpoint = checkpoint
        self.error = error
        self.path = path
        self.best_checkpoints = best_checkpoints or []
        self.config = config
        self.return_value = return_value
        self._filesystem = filesystem
        self._ledger = ledger
        self._rows = rows

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> Result:
        """Read the result of a run, or of a trial, from its directory or URL. The run may be running, finished, failed,
        moved or copied.
        """
        from holdfast.runs.stored_experiment import load

        location = Location.parse("Result.from_path(path", path, storage_filesystem)
        return cls.from_history(location, load(location))

    @classmethod
    def from_history(
        cls,
        location: Location,
        history: Reading,
        *,
        error: TrainingFailedError | None = None,
        return_value: Any = None,
        config: dict[str, Any] | None = None,
    ) -> Result:
        """``error``, ``return_value`` and ``config`` are the driver's objects in memory; files may only describe
        them."""
        checkpoints = [(Checkpoint(place), metrics) for _, place, metrics in history.checkpoints]
        return cls(
            metrics=history.metrics,
            checkpoint=None if history.newest is None else Checkpoint(history.newest),
            error=error or history.error,
            path=str(location),
            rows=partial(getattr, history, "rows"),
            best_checkpoints=checkpoints,
            config=history.config if config is None else config,
            return_value=return_value,
            filesystem=location,
            ledger=partial(getattr, history, "ledger"),
        )

    def __getstate__(self) -> dict[str, Any]:
        """With the values that are otherwise read on demand."""
        rows = self._rows() if callable(self._rows) else self._rows
        return {**self.__dict__, "_rows": list(rows), "_ledger": self.ledger}

    @property
    def filesystem(self) -> Any:
        """The file system that you passed, or a pyarrow one for this disk or bucket; ``path`` is a path in it."""
        return self._filesystem.as_filesystem() if isinstance(self._filesystem, Location) else self._filesystem

    @property
    def ledger(self) -> Any:
        """Where the wall-clock time went, goodput, and the failures with their causes."""
        return self._ledger() if callable(self._ledger) else self._ledger

    @property
    def metrics_dataframe(self) -> Any:
        """Every report of rank 0 in the surviving history as a pandas DataFrame, one row each; None without reports.

        Of a trial, it also has the configuration, in columns such as "config/lr".
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError("Result.metrics_dataframe needs pandas: run pip install 'holdfast[dataframe]'") from error
        rows = self._rows() if callable(self._rows) else self._rows
        if not rows:
            return None
        config = list(flat_items(self.config or {}, "config/")) if "trial_id" in rows[0] else []
        return pandas.DataFrame([encodable_row([*flat_items(row), *config]) for row in rows])

    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint | None:
        """Return the kept checkpoint with the highest ("max") or lowest ("min") ``metric``. "a/b" looks into nested
        metrics. Checkpoints whose value is missing, NaN or not a number are ignored.
        """
        if mode not in ("max", "min"):
            raise ValueError(f'get_best_checkpoint(mode={mode!r}): use "max" or "min"')
        if not self.best_checkpoints:
            raise RuntimeError(f"The run {self.path} has no checkpoint; pass one to report(metrics, checkpoint=…)")
        scored = [
            (value, checkpoint)
            for checkpoint, metrics in self.best_checkpoints
            if (value := number(lookup(metrics, metric))) is not None and not math.isnan(value)
        ]
        if not scored:
            known = sorted({key for _, metrics in self.best_checkpoints for key, _ in flat_items(metrics)})
            raise RuntimeError(
                f"No checkpoint has a number as metric {metric!r}. "
                f"The metrics that were reported with checkpoints: {', '.join(known) or 'none'}"
            )
        best = max if mode == "max" else min
        return best(scored, key=lambda pair: pair[0])[1]

    def _repr_html_(self) -> str:
        """The view in a notebook."""
        from holdfast.pictures.result_html import result_html

        rows = [dict(flat_items(row)) for row in (self._rows() if callable(self._rows) else self._rows)]
        facts = {} if self.checkpoint is None else {"checkpoint": str(self.checkpoint.path)}
        error = "" if self.error is None else f"{type(self.error).__name__}: {self.error}"
        return result_html(self.path, error, dict(flat_items(self.metrics or {})), rows, facts)

    def __repr__(self) -> str:
        metrics = self.metrics
        if metrics and "trial_id" in metrics:  # what every result of a trial has says nothing of this one
            metrics = {name: value for name, value in metrics.items() if name not in AUTO_KEYS}
        lines = [f"metrics={metrics!r}", f"checkpoint={self.checkpoint!r}", f"path={self.path!r}"]
        if self.error is not None:
            lines.insert(0, f"error={type(self.error).__name__}({str(self.error).partition(chr(10))[0]!r})")
        return f"{type(self).__name__}(\n  " + ",\n  ".join(lines) + "\n)"
