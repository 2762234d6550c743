"""Callbacks of the user. They run in the driver, one after another in the given order. They observe trials and change
nothing.

An event is in the journal before a hook receives it. After a driver crash, the next driver delivers every result and
end that callbacks may have missed, so the last ones may come twice. A callback that writes must recognize what it has
already written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

Checkpoint: TypeAlias = Any  # a ``train.Checkpoint``; trackers use only its path
Stopper: TypeAlias = Any  # a ``tune.Stopper``


class Trial(Protocol):
    """A trial as callbacks, loggers and reporters see it. ``str(trial)`` is its name."""

    @property
    def trial_id(self) -> str: ...

    @property
    def config(self) -> Mapping[str, Any]: ...

    @property
    def evaluated_params(self) -> Mapping[str, Any]:
        """The part of the config that was searched, by flat names ("optimizer/lr")."""

    @property
    def status(self) -> str:
        """PENDING, RUNNING, PAUSED, TERMINATED or ERROR."""

    @property
    def last_result(self) -> Mapping[str, Any]:
        """The last result; empty before the first one."""

    @property
    def local_path(self) -> str:
        """The trial's directory on the driver's machine."""

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The latest committed checkpoint."""

    @property
    def error(self) -> str | None:
        """Why the trial failed the last time, even if it was retried since; None if it never failed."""


class Callback:
    """The base class of tuning callbacks. Override the methods that you need, and pass instances to
    ``RunConfig(callbacks=[...])``.

    ``iteration`` counts the iterations of the experiment's loop, and ``trials`` are all trials. Accept ``**info`` in
    your methods, because later versions may pass more.
    """

    def setup(
        self,
        stop: Stopper | None = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """Called first, once for each driver."""

    def on_step_begin(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None: ...

    def on_step_end(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None: ...

    def on_trial_start(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """Called when a trial was started, for the first time or again."""

    def on_trial_restore(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """Called after ``on_trial_start`` when the trial resumes from a checkpoint."""

    def on_trial_save(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """Called when a new checkpoint of a trial has been committed."""

    def on_trial_result(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Called when a trial has reported. The searcher and the scheduler already know the result."""

    def on_trial_complete(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """Called when a trial has finished without an error: it returned, or was stopped."""

    def on_trial_recover(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """Called when a trial has failed and will be retried."""

    def on_trial_error(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """Called when a trial has failed for good."""

    def on_checkpoint(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, checkpoint: Checkpoint, **info: Any
    ) -> None:
        """Called with each new checkpoint, after ``on_trial_save``."""

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        """Called when all trials have finished, or the experiment was stopped."""

    def get_state(self) -> dict[str, Any] | None:
        """Return the state that ``set_state`` needs after a restore, as JSON values; None if there is none."""
        return None

    def set_state(self, state: dict[str, Any]) -> None: ...
