"""Callbacks in a real experiment: what they are told when a trial is tried again, and what they keep over a restore."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from support.tune import counting, dies_while_telling

ENDS_WITHIN_S = 120.0


class Counts(tune.Callback):
    def __init__(self) -> None:
        self.results, self.recovered, self.given = 0, 0, -1

    def on_trial_result(self, *args: Any, **info: Any) -> None:
        self.results += 1

    def on_trial_recover(self, *args: Any, **info: Any) -> None:
        self.recovered += 1

    def get_state(self) -> dict[str, Any]:
        return {"results": self.results}

    def set_state(self, state: dict[str, Any]) -> None:
        self.results = self.given = state["results"]


def fails_twice(config: dict[str, Any]) -> None:
    attempts = Path(config["notes"], "attempts")
    with attempts.open("a") as file:
        file.write("x")
    tune.report({"attempt": len(attempts.read_text())})
    if len(attempts.read_text()) < 3:
        raise ValueError(f"attempt {len(attempts.read_text())}")


def saves_and_waits(config: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "file").touch()
        tune.report({"x": 1}, checkpoint=tune.Checkpoint.from_directory(directory))
    while Path(config["until"]).exists():
        time.sleep(0.02)


class Raises(tune.Callback):
    def on_trial_save(self, *args: Any, **info: Any) -> None:
        raise RuntimeError("on purpose")


def test_a_callback_that_raises_leaves_no_thread_of_a_running_trial(tmp_path: Path) -> None:
    """Every test checks that; and the next driver continues the trial."""
    space, waits = {"until": str(tmp_path / "waits")}, tmp_path / "waits"
    waits.touch()
    run = tune.RunConfig(name="raised", storage_path=str(tmp_path), verbose=0, callbacks=[Raises()])
    with pytest.raises(RuntimeError, match="on purpose"):
        tune.Tuner(saves_and_waits, param_space=space, run_config=run).fit()
    waits.unlink()
    run = tune.RunConfig(name="raised", storage_path=str(tmp_path), verbose=0)
    grid = tune.Tuner(saves_and_waits, param_space=space, run_config=run).fit()
    assert (grid.num_terminated, grid[0].metrics["training_iteration"]) == (1, 2)


def test_a_retry_is_told_and_the_state_comes_back_after_a_restore(tmp_path: Path) -> None:
    first = Counts()
    run = tune.RunConfig(
        name="counted",
        storage_path=str(tmp_path),
        verbose=0,
        callbacks=[first],
        failure_config=tune.FailureConfig(max_failures=1),
    )
    grid = tune.Tuner(fails_twice, param_space={"notes": str(tmp_path)}, run_config=run).fit()
    assert grid.num_errors == 1
    assert (first.recovered, first.results, first.given) == (1, 2, -1)

    second = Counts()
    run.callbacks = [second]
    tuner = tune.Tuner.restore(str(tmp_path / "counted"), fails_twice, resume_errored=True, run_config=run)
    assert not tuner.fit().num_errors
    assert (second.given, second.results) == (2, 3)


def test_a_state_that_cannot_be_stored_is_told_with_the_callback(tmp_path: Path) -> None:
    class Odd(tune.Callback):
        def get_state(self) -> dict[str, Any]:
            return {"lock": object()}

    run = tune.RunConfig(name="odd", storage_path=str(tmp_path), verbose=0, callbacks=[Odd()])
    with pytest.raises(RuntimeError, match=r"Odd.get_state raised TypeError: the state\['lock'\] is a builtins.object"):
        tune.Tuner(fails_twice, param_space={"notes": str(tmp_path)}, run_config=run).fit()


def test_what_a_killed_driver_had_not_told_is_told_by_the_next(tmp_path: Path) -> None:
    """Also to loggers, which write nothing twice."""
    command = [sys.executable, dies_while_telling.__file__, str(tmp_path)]
    for _ in dies_while_telling.FATES:
        assert subprocess.run(command, timeout=ENDS_WITHIN_S).returncode == -signal.SIGKILL
    assert subprocess.run(command, timeout=ENDS_WITHIN_S).returncode == 0
    assert (tmp_path / "drivers.log").read_text().split("\n") == [*dies_while_telling.FATES, "", ""]
    heard = (tmp_path / "heard.log").read_text().splitlines()
    trials = sorted({line.split()[0] for line in heard})
    assert len(trials) == 2
    hooks = [*map(str, range(1, counting.EPOCHS + 1)), "complete"]
    assert sorted(set(heard)) == sorted(f"{trial} {hook}" for trial in trials for hook in hooks)
    for name in trials:
        (results,) = tmp_path.glob(f"counted/*{name}*/result.json")
        assert [json.loads(line)["epoch"] for line in results.read_text().splitlines()] == [*range(1, 9)]
        rows = list(csv.DictReader((results.parent / "progress.csv").read_text().splitlines()))
        assert [int(row["epoch"]) for row in rows] == [*range(1, 9)]


def test_a_clean_end_leaves_nothing_to_be_told_again(tmp_path: Path) -> None:
    counting.tuner(str(tmp_path), samples=1).fit()
    again = Counts()
    run = tune.RunConfig(callbacks=[again], verbose=0)  # type: ignore[list-item]
    tune.Tuner.restore(str(tmp_path / "counted"), counting.count, run_config=run).fit()
    assert again.results == 0
