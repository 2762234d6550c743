"""What loggers have in common: the hooks under their well-known names, and values as JSON.

A logger's files are a copy of the journal for people and tools. A result that is delivered again after a driver crash
is not written twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.store import values
from holdfast.trackers.trial_callback import Callback, Trial

_encoder = msgspec.json.Encoder()


class LoggerCallback(Callback):
    """The base class of loggers. Override the methods that you need."""

    def log_trial_start(self, trial: Trial) -> None:
        """Called when the trial was started, for the first time or again, perhaps with another config."""

    def log_trial_restore(self, trial: Trial) -> None:
        """Called when the trial resumes from a checkpoint."""

    def log_trial_save(self, trial: Trial) -> None:
        """Called when the trial has a new checkpoint."""

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Called when the trial has reported."""

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Called when the trial has finished; ``failed`` if it failed. Close its open files here."""

    def on_trial_start(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        self.log_trial_start(trial)

    def on_trial_restore(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        self.log_trial_restore(trial)

    def on_trial_save(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        self.log_trial_save(trial)

    def on_trial_result(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        self.log_trial_result(iteration, trial, result)

    def on_trial_complete(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        self.log_trial_end(trial, failed=False)

    def on_trial_error(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        self.log_trial_end(trial, failed=True)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON for people and tools: numpy and torch values as numbers and lists, other values that JSON lacks as their
    repr.

    NaN stays NaN, as readers of such files expect.
    """
    try:
        return json.dumps(value, default=_plain, indent=indent, sort_keys=indent is not None)
    except TypeError:  # keys that are not strings, or that have several types
        return json.dumps(_with_text_keys(value), default=_plain, indent=indent, sort_keys=indent is not None)


def json_line(value: Any) -> bytes:
    """The same as one line."""
    if values.is_plain(value):
        try:
            return _encoder.encode(value) + b"\n"
        except UnicodeEncodeError:
            pass
    return f"{json_text(value)}\n".encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    to_list = getattr(value, "tolist", None)
    if callable(to_list):
        return to_list()
    return repr(value)


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else repr(key): _with_text_keys(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_text_keys(item) for item in value]
    return value
