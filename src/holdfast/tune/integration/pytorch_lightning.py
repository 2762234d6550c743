"""Lightning inside a trial: metrics and checkpoints as reports of the trial."""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast.train.integrations import require

require(__name__, "lightning", "lightning", "pytorch_lightning")

from holdfast.train.api import report  # noqa: E402
from holdfast.train.boosting import Metrics, names_of  # noqa: E402
from holdfast.train.checkpoint import Checkpoint  # noqa: E402
from holdfast.train.checks import warn_once  # noqa: E402
from holdfast.train.lightning.lightning_modules import pl  # noqa: E402

_HOOKS = {name for name, _ in inspect.getmembers(pl.callbacks.Callback, inspect.isfunction) if name.startswith("on_")}


class TuneCallback(pl.callbacks.Callback):  # type: ignore[misc]
    """Calls ``_handle`` on hooks of Lightning, named without their ``on_``, as in ``"validation_end"``."""

    def __init__(self, on: str | list[str] = "validation_end") -> None:
        super().__init__()
        self._on = [f"on_{hook}" for hook in ([on] if isinstance(on, str) else on)]
        unknown = [hook for hook in self._on if hook not in _HOOKS]
        if unknown:
            raise ValueError(f"{type(self).__name__}(on={on!r}): Lightning has no hook {unknown[0]}")
        for hook in self._on:
            setattr(self, hook, partial(self._called, getattr(self, hook)))

    def _called(self, inherited: Callable[..., None], trainer: Any, *args: Any, **kwargs: Any) -> None:
        inherited(trainer, *args, **kwargs)  # what a subclass does on this hook
        if not trainer.sanity_checking:
            self._handle(trainer, args[0] if args else kwargs.get("pl_module"))

    def _handle(self, trainer: Any, pl_module: Any) -> None:
        raise NotImplementedError


class TuneReportCheckpointCallback(TuneCallback):
    """Reports metrics of Lightning with a checkpoint. ``metrics`` is one name, a list, or a dict that renames them;
    None means all. ``filename`` is the name of the file in the checkpoint. ``save_checkpoints=False`` reports only the
    metrics."""

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = "checkpoint",
        save_checkpoints: bool = True,
        on: str | list[str] = "validation_end",
    ) -> None:
        super().__init__(on)
        self._names, self._filename, self._saves = names_of(metrics), filename, save_checkpoints

    def _handle(self, trainer: Any, pl_module: Any) -> None:
        found = {name: value.item() for name, value in trainer.callback_metrics.items()}
        missing = sorted(set(self._names.values()) - set(found))
        if missing:
            warn_once(f"missing {missing}", f"Lightning has no metric {', '.join(missing)} yet; it is not reported")
        if self._names:
            found = {name: found[metric] for name, metric in self._names.items() if metric in found}
        if not found:
            return
        if not self._saves:
            report(found)
            return
        with tempfile.TemporaryDirectory() as directory:
            trainer.save_checkpoint(os.path.join(directory, self._filename))
            report(found, Checkpoint.from_directory(directory))


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports metrics without a checkpoint."""

    def __init__(self, metrics: Metrics = None, on: str | list[str] = "validation_end") -> None:
        super().__init__(metrics, save_checkpoints=False, on=on)
