"""A class trainable in its trial's process: restore, then step, report, step, report, until a result says ``done``.

A checkpoint is saved with the report of the step after which it was due: every so many steps, at the end, when the
result requests one, or when the driver does. The end is a result that says so, or that reaches a criterion of ``stop``:
the driver stops the trial then, but its work must be saved by that time. If a scheduler may pause the trial, or its end
is to be saved and only the driver knows which step is the last, each report that a decision may follow has a
checkpoint.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from holdfast.core.metric_names import flat_items, lookup, number
from holdfast.train.api import checkpoint_requested, get_checkpoint, report
from holdfast.train.context import FREE_UNTIL, TRIAL
from holdfast.worker.session import current

from .trainable import DONE, SHOULD_CHECKPOINT, Trainable

_NOT_REPORTED = ("config",)  # the driver knows it, and it may contain values that a report cannot hold


def class_entry(
    cls: type[Trainable],
    checkpoint_frequency: int | None = 0,
    checkpoint_at_end: bool | None = None,
    stop: Any = None,
    may_pause: bool = False,
    may_stop: bool = False,
) -> ClassEntry:
    """A trial's process calls this with the trial's config. ``checkpoint_frequency`` is in steps, 0 for never;
    ``checkpoint_at_end`` None means: if the class can save, and knows itself that it ends. ``stop`` are the criteria of
    ``RunConfig(stop=...)``; anything but a dict is for the driver only. ``may_pause``: its scheduler may let it, or
    another trial, resume where a decision was made. ``may_stop``: its scheduler may end it."""
    if not (isinstance(cls, type) and issubclass(cls, Trainable)):
        raise TypeError(f"trainable={cls!r}: pass a subclass of holdfast.tune.Trainable, or a function")
    can_save = cls.save_checkpoint is not Trainable.save_checkpoint
    if (checkpoint_frequency or checkpoint_at_end) and not can_save:
        raise ValueError(
            f"CheckpointConfig(checkpoint_frequency={checkpoint_frequency}, checkpoint_at_end={checkpoint_at_end}): "
            f"{cls.__name__} has no save_checkpoint; write one, or leave these out"
        )
    at_end = can_save if checkpoint_at_end is None else checkpoint_at_end
    criteria = dict(flat_items(stop)) if isinstance(stop, Mapping) and at_end else {}
    knows_its_end = not may_stop and (stop is None or isinstance(stop, Mapping))
    before_decisions = can_save and (may_pause or (bool(checkpoint_at_end) and not knows_its_end))
    return ClassEntry(cls, checkpoint_frequency or 0, at_end, can_save, criteria, before_decisions)


class ClassEntry:
    def __init__(
        self,
        cls: type[Trainable],
        checkpoint_frequency: int,
        checkpoint_at_end: bool,
        can_save: bool,
        stop: dict[str, Any],
        before_decisions: bool,
    ) -> None:
        self.cls = cls
        self.checkpoint_frequency, self.checkpoint_at_end = checkpoint_frequency, checkpoint_at_end
        self.can_save, self.stop, self.before_decisions = can_save, stop, before_decisions

    def __call__(self, config: dict[str, Any]) -> None:
        session = current()
        if not session.started:
            session.ready()
        with _cleaned_up_at_sigterm():
            trainable = self.cls(config=config)
            try:
                self._run(trainable)
            finally:
                trainable.stop()

    def _run(self, trainable: Trainable) -> None:
        checkpoint = get_checkpoint()
        if checkpoint is not None:
            trainable.restore(checkpoint)
        done = False
        while not done:
            result = trainable.train()
            done = bool(result.get(DONE))
            metrics = {name: value for name, value in result.items() if name not in _NOT_REPORTED}
            _report(trainable, metrics, save=self._is_due(trainable, result))

    def _is_due(self, trainable: Trainable, result: dict[str, Any]) -> bool:
        if result.get(SHOULD_CHECKPOINT) or (self.checkpoint_at_end and (result.get(DONE) or self._is_to_stop(result))):
            return True
        if self.checkpoint_frequency and trainable.iteration % self.checkpoint_frequency == 0:
            return True
        if self.before_decisions and current().awaits_decision and trainable.iteration > _free_until():
            return True
        return self.can_save and (_take_save_request() or checkpoint_requested())

    def _is_to_stop(self, result: dict[str, Any]) -> bool:
        values = ((_amount(lookup(result, name)), _amount(limit)) for name, limit in self.stop.items())
        return any(value is not None and limit is not None and value >= limit for value, limit in values)


def _amount(value: Any) -> float | None:
    return float(value) if isinstance(value, bool) else number(value)


def _take_save_request() -> bool:
    """Whether a callback has requested a checkpoint, with ``should_checkpoint`` in a result."""
    session = current()
    asked, session.save_asked = session.save_asked, False
    return asked


def _free_until() -> int:
    """The last step behind which the driver had nothing to decide when it started the trial."""
    about: dict[str, Any] = current().metadata.get(TRIAL, {})
    return int(about.get(FREE_UNTIL, 0))


def _report(trainable: Trainable, metrics: dict[str, Any], save: bool) -> None:
    if not save:
        report(metrics)
        return
    with tempfile.TemporaryDirectory() as directory:
        report(metrics, checkpoint=trainable.save(directory).checkpoint)


class _Terminated(BaseException):
    """A SIGTERM came."""


@contextmanager
def _cleaned_up_at_sigterm() -> Iterator[None]:
    """Let a SIGTERM unwind the running code, and then end the process as if it had not been handled. Keep a handler
    that the user installed."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def terminate(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # handle it once: the next signal would interrupt the clean-up
        raise _Terminated

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except _Terminated:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the trainable may have put anything in their place
                stream.flush()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
