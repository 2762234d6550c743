"""``result.json`` with one result per line, and ``params.json`` with the config, in the trial's directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdfast.store.disk import replace_file
from holdfast.trackers.logger_callback import json_line, json_text
from holdfast.trackers.trial_callback import Trial
from holdfast.trackers.trial_files import AppendedFile, TrialFileLogger

RESULTS = "result.json"
PARAMS = "params.json"


class JsonLoggerCallback(TrialFileLogger[AppendedFile]):
    """Writes the trial's config to ``params.json`` and appends each result to ``result.json``."""

    def __init__(self) -> None:
        super().__init__()
        self._told: set[str] = set()  # trials whose config has been written
        self._written_before: dict[str, set[str]] = {}  # by an earlier driver; until the first new result

    def log_trial_start(self, trial: Trial) -> None:
        self._told.add(trial.trial_id)
        self.update_config(trial, dict(trial.config))

    def update_config(self, trial: Trial, config: dict[str, Any]) -> None:
        path = Path(trial.local_path, PARAMS)
        if self._is_ours():
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, json_text(config, indent=2).encode())

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        if trial.trial_id not in self._told:  # code that calls a logger itself may leave out the start
            self.log_trial_start(trial)
        file, line = self._file_of(trial), json_line(result)
        if self._written_before and trial.trial_id in self._written_before:
            if _told_by(line) in self._written_before[trial.trial_id]:
                return
            del self._written_before[trial.trial_id]
        file.add(line)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        self._written_before.pop(trial.trial_id, None)
        self._told.discard(trial.trial_id)
        super().log_trial_end(trial, failed)

    def _open(self, trial: Trial) -> AppendedFile:
        path = Path(trial.local_path, RESULTS)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as before:
            before.seek(0)
            lines = before.readlines()
            if lines and not lines[-1].endswith(b"\n") and self._is_ours():
                before.truncate(before.tell() - len(lines.pop()))  # the driver was killed while it wrote
        if lines:
            self._written_before[trial.trial_id] = set(map(_told_by, lines))
        return AppendedFile(path, self._is_ours)


def _told_by(line: bytes) -> str:
    """What identifies a result. Not its config, because an object in that may look different in another process."""
    try:
        result = json.loads(line)
    except ValueError:
        return repr(line)
    result.pop("config", None)
    return json.dumps(result, sort_keys=True)
