"""Class trainables: ``setup`` once, then ``step`` after ``step``, with ``save_checkpoint`` and ``load_checkpoint``.

An instance also works without a trial: ``train()``, ``save()`` and ``restore()`` are the methods that the trial's loop
calls too.
"""

from __future__ import annotations

import copy
import os
import platform
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.train.api import get_context
from holdfast.train.checkpoint import Checkpoint
from holdfast.tune.context import get_context as tune_context
from holdfast.tune.resources import PlacementGroupFactory
from holdfast.tune.result_metrics import TRAINING_ITERATION

from . import saving

if TYPE_CHECKING:
    from holdfast.train.context import TrainContext

DONE, SHOULD_CHECKPOINT = "done", "should_checkpoint"
_DEBUG_METRICS = ("date", "hostname", "node_ip", "pid", "timestamp", "trial_id")


@dataclass(frozen=True)
class TrainingResult:
    """What ``Trainable.save`` returns and ``Trainable.restore`` accepts."""

    checkpoint: Checkpoint
    metrics: dict[str, Any]


class Trainable:
    """The base class of trainable classes. Override ``setup``, ``step``, ``save_checkpoint`` and ``load_checkpoint``.

    ``storage`` exists for scripts that pass it on, and is not used. Each trial has its own working directory, below
    ``logdir``, the trial's directory.
    """

    def __init__(self, config: dict[str, Any] | None = None, storage: Any = None) -> None:
        self.config: dict[str, Any] = config or {}
        self._logdir = ""
        self._start_time = time.time()
        self._last_result: dict[str, Any] | None = None
        self._start_over()
        self.setup(copy.deepcopy(self.config))

    def _start_over(self) -> None:
        self._iteration = 0
        self._time_total = 0.0
        self._timesteps_total: int | None = None
        self._episodes_total: int | None = None
        self._time_since_restore = 0.0
        self._timesteps_since_restore = 0
        self._iterations_since_restore = 0
        self._restored = False

    # For subclasses

    def setup(self, config: dict[str, Any]) -> None:
        """Prepare for the first step; ``config`` is a copy of ``self.config``."""

    def step(self) -> dict[str, Any]:
        """Do one iteration and return its metrics. ``{"done": True}`` ends the trial; ``{"should_checkpoint": True}``
        asks for a checkpoint.
        """
        raise NotImplementedError(f"{type(self).__name__}.step(): override it, and return a dict of metrics")

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | None:
        """Save files into the directory, or return a dict to save."""
        raise NotImplementedError(f"{type(self).__name__}.save_checkpoint(checkpoint_dir): override it to save")

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Restore a checkpoint: the dict that ``save_checkpoint`` returned, or the directory that it wrote to."""
        raise NotImplementedError(f"{type(self).__name__}.load_checkpoint(checkpoint): override it to restore")

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Switch to another config. Return whether that was possible."""
        return False

    def log_result(self, result: dict[str, Any]) -> None:
        """Called in the trial's process with each result, as it is reported."""

    def cleanup(self) -> None:
        """Called when the trial ends, also when it is stopped or fails."""

    def _export_model(self, export_formats: list[str], export_dir: str) -> dict[str, str]:
        return {}

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory | None:  # noqa: ARG003
        """Return the resources of a trial with this config; None for one CPU."""
        return None

    @classmethod
    def resource_help(cls, config: dict[str, Any]) -> str:  # noqa: ARG003
        return ""

    # Called by the trial's loop

    def train(self) -> dict[str, Any]:
        """Do one step. Return its result, with the iteration, the times, the host and the process added."""
        start = time.time()
        given = self.step()
        if not isinstance(given, Mapping):
            raise TypeError(
                f"{type(self).__name__}.step() returned {given!r:.200}: return a dict of metrics, as in {{'loss': 0.1}}"
            )
        result = dict(given)
        took = result.get("time_this_iter_s")
        took = time.time() - start if took is None else took
        self._count(result, took)
        result.setdefault(DONE, False)
        for name, amount in (("timesteps_total", self._timesteps_total), ("episodes_total", self._episodes_total)):
            if amount is not None:
                result.setdefault(name, amount)
        result.setdefault(TRAINING_ITERATION, self._iteration)
        result.update(self.get_auto_filled_metrics(time_this_iter=took, timestamp=result.get("timestamp")))
        self.log_result(result)
        self._last_result = result
        return result

    def _count(self, result: Mapping[str, Any], took: float) -> None:
        self._iteration += 1
        self._iterations_since_restore += 1
        self._time_total += took
        self._time_since_restore += took
        steps, episodes = result.get("timesteps_this_iter"), result.get("episodes_this_iter")
        if steps is not None:
            self._timesteps_total = (self._timesteps_total or 0) + steps
            self._timesteps_since_restore += steps
        if episodes is not None:
            self._episodes_total = (self._episodes_total or 0) + episodes

    def train_buffered(self, buffer_time_s: float, max_buffer_length: int = 1000) -> list[dict[str, Any]]:
        """Do steps until the time is up, the buffer is full, or a result is done or asks for a checkpoint."""
        results: list[dict[str, Any]] = []
        over = time.time() + buffer_time_s
        while not results or (time.time() < over and len(results) < max_buffer_length):
            results.append(self.train())
            if results[-1].get(DONE) or results[-1].get(SHOULD_CHECKPOINT):
                break
        return results

    def save(self, checkpoint_dir: str | None = None) -> TrainingResult:
        """Save into the directory, or into a new temporary one that the caller removes."""
        directory = tempfile.mkdtemp() if checkpoint_dir is None else checkpoint_dir
        os.makedirs(directory, exist_ok=True)
        returned = self.save_checkpoint(directory)
        progress = {
            "iteration": self._iteration,
            "time_total": self._time_total,
            "timesteps_total": self._timesteps_total,
            "episodes_total": self._episodes_total,
        }
        saving.write(type(self).__name__, directory, returned, progress)
        return TrainingResult(Checkpoint.from_directory(directory), dict(self._last_result or {}))

    def restore(self, checkpoint_path: str | os.PathLike[str] | Checkpoint | TrainingResult) -> None:
        """Restore from the return value of ``save``, from its checkpoint, or from a checkpoint's directory."""
        given = checkpoint_path.checkpoint if isinstance(checkpoint_path, TrainingResult) else checkpoint_path
        checkpoint = given if isinstance(given, Checkpoint) else Checkpoint(given)
        self._start_over()
        with checkpoint.as_directory() as directory:
            progress = saving.read_progress(directory)
            self._iteration = progress.get("iteration", 0)
            self._time_total = progress.get("time_total", 0.0)
            self._timesteps_total = progress.get("timesteps_total")
            self._episodes_total = progress.get("episodes_total")
            self.load_checkpoint(saving.read(directory))
        self._restored = True

    def reset(self, new_config: dict[str, Any], storage: Any = None) -> bool:
        """Start over with another config, if ``reset_config`` can do that."""
        self.config = new_config
        if not self.reset_config(new_config):
            return False
        self._start_over()
        return True

    def stop(self) -> None:
        self.cleanup()

    def export_model(self, export_formats: list[str] | str, export_dir: str | None = None) -> dict[str, str]:
        formats = [export_formats] if isinstance(export_formats, str) else export_formats
        return self._export_model(formats, export_dir or self.logdir)

    # Properties

    @property
    def iteration(self) -> int:
        """The number of steps so far, including those before a restore."""
        return self._iteration

    @property
    def training_iteration(self) -> int:
        return self._iteration

    @property
    def logdir(self) -> str:
        """The trial's directory; without a trial, a temporary one that is created on demand."""
        context = _context()
        if context is not None:
            return context.get_trial_dir()
        self._logdir = self._logdir or tempfile.mkdtemp()
        return self._logdir

    @property
    def trial_name(self) -> str:
        context = _context()
        return "default" if context is None else context.get_trial_name()

    @property
    def trial_id(self) -> str:
        context = _context()
        return "default" if context is None else context.get_trial_id()

    @property
    def trial_resources(self) -> Any:
        return None if _context() is None else tune_context().get_trial_resources()

    def get_config(self) -> dict[str, Any]:
        return self.config

    def get_state(self) -> dict[str, Any]:
        return {
            "iteration": self._iteration,
            "timesteps_total": self._timesteps_total,
            "time_total": self._time_total,
            "episodes_total": self._episodes_total,
            "last_result": self._last_result,
        }

    def get_current_ip_pid(self) -> tuple[str, int]:
        return _address(), os.getpid()

    def is_actor(self) -> bool:
        """Return whether it runs in a trial."""
        return _context() is not None

    def get_auto_filled_metrics(
        self,
        now: datetime | None = None,
        time_this_iter: float | None = None,
        timestamp: int | None = None,
        debug_metrics_only: bool = False,
    ) -> dict[str, Any]:
        """Return the fields that are added to each result; with ``debug_metrics_only`` only those that need no step."""
        now = now or datetime.now()
        filled = {
            "trial_id": self.trial_id,
            "date": now.strftime("%Y-%m-%d_%H-%M-%S"),
            "timestamp": timestamp or int(now.timestamp()),
            "time_this_iter_s": time_this_iter,
            "time_total_s": self._time_total,
            "pid": os.getpid(),
            "hostname": platform.node(),
            "node_ip": _address(),
            "config": self.config,
            "time_since_restore": self._time_since_restore,
            "iterations_since_restore": self._iterations_since_restore,
        }
        if self._timesteps_since_restore:
            filled["timesteps_since_restore"] = self._timesteps_since_restore
        return {name: filled[name] for name in _DEBUG_METRICS} if debug_metrics_only else filled

    def _implements_method(self, key: str) -> bool:
        return callable(getattr(self, key, None))


def _context() -> TrainContext | None:
    try:
        return get_context()
    except RuntimeError:
        return None


def _address() -> str:
    from holdfast.worker import session

    try:
        return session.current().address
    except RuntimeError:
        return "127.0.0.1"
