"""``result.json``: one result a line, and ``params.json``: the config, in the trial's directory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from holdfast.store.disk import replace_file
from holdfast.trackers.logger_callback import LoggerCallback, json_line, json_text
from holdfast.trackers.trial_callback import Trial

RESULTS = "result.json"
PARAMS = "params.json"


class JsonLoggerCallback(LoggerCallback):
    """Keeps ``params.json`` at the trial's config and appends each result to ``result.json``."""

    def __init__(self) -> None:
        self._files: dict[str, BinaryIO] = {}
        self._unflushed: set[BinaryIO] = set()
        self._written_before: dict[str, set[str]] = {}  # by an earlier driver, until the first result that is new

    def log_trial_start(self, trial: Trial) -> None:
        self.update_config(trial, dict(trial.config))

    def update_config(self, trial: Trial, config: dict[str, Any]) -> None:
        path = Path(trial.local_path, PARAMS)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json_text(config, indent=2).encode())

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        if trial.trial_id not in self._files:
            self._open(trial)
        line = json_line(result)
        if self._written_before and trial.trial_id in self._written_before:
            if _told_by(line) in self._written_before[trial.trial_id]:
                return
            del self._written_before[trial.trial_id]
        file = self._files[trial.trial_id]
        file.write(line)
        self._unflushed.add(file)

    def on_step_end(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        while self._unflushed:
            self._unflushed.pop().flush()

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        self._written_before.pop(trial.trial_id, None)
        file = self._files.pop(trial.trial_id, None)
        if file is not None:
            self._unflushed.discard(file)
            file.close()

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        self._unflushed.clear()
        while self._files:  # of trials that were left unfinished
            self._files.popitem()[1].close()

    def _open(self, trial: Trial) -> None:
        path = Path(trial.local_path, RESULTS)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as before:
            before.seek(0)
            lines = before.readlines()
            if lines and not lines[-1].endswith(b"\n"):
                before.truncate(before.tell() - len(lines.pop()))  # the driver died while it wrote
        self._files[trial.trial_id] = path.open("ab")
        if lines:
            self._written_before[trial.trial_id] = set(map(_told_by, lines))


def _told_by(line: bytes) -> str:
    """What tells a result from others. Its config does not: an object in it may look different in another process."""
    try:
        result = json.loads(line)
    except ValueError:
        return repr(line)
    result.pop("config", None)
    return json.dumps(result, sort_keys=True)
