"""``python dies_while_telling.py STORAGE`` tunes, and is killed by a callback before those behind it have heard of the
same; not any more when it is run for the fourth time."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast import tune
from support.tune import counting

FATES = ["result", "result", "complete"]  # of the drivers, in turn


class Dies(tune.Callback):
    """At its third result, or at the first end of a trial."""

    def __init__(self, log: Path) -> None:
        drivers = log.read_text().count("\n") if log.exists() else 0
        self._fate = FATES[drivers] if drivers < len(FATES) else ""
        self._results = 0
        with log.open("a") as file:
            file.write(f"{self._fate}\n")

    def on_trial_result(self, iteration: int, trials: Sequence[Any], trial: Any, result: Any, **info: Any) -> None:
        self._results += 1
        if self._fate == "result" and self._results == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_trial_complete(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        if self._fate == "complete":
            os.kill(os.getpid(), signal.SIGKILL)


class Hears(tune.Callback):
    def __init__(self, log: Path) -> None:
        self._log = log
        self._known: set[str] = set()

    def on_trial_start(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        self._known.add(trial.trial_id)

    def on_trial_result(self, iteration: int, trials: Sequence[Any], trial: Any, result: Any, **info: Any) -> None:
        self._note(f"{trial.trial_id} {result['epoch']}", trial)

    def on_trial_complete(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        self._note(f"{trial.trial_id} complete", trial)

    def _note(self, what: str, trial: Any) -> None:
        assert trial.trial_id in self._known, "nobody said that it had started"
        with self._log.open("a") as file:
            file.write(f"{what}\n")


if __name__ == "__main__":
    storage = Path(sys.argv[1])
    tuner = counting.tuner(str(storage), samples=2)
    tuner._definition.run_config.callbacks = [Dies(storage / "drivers.log"), Hears(storage / "heard.log")]
    tuner.fit()
