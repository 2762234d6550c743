"""The loggers' files: what is in them, and that no crash of the driver tears them or doubles a result."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from holdfast.errors import StorageError
from holdfast.tune.logger import (
    CSVLoggerCallback,
    JsonLoggerCallback,
    LoggerCallback,
    TBXLoggerCallback,
    default_loggers,
)
from support.tune.logged_trial import LoggedTrial, result

RESULTS = [result(i, loss=1 / i, eval={"accuracy": i / 10}) for i in range(1, 6)]


@pytest.fixture
def trial(tmp_path: Path) -> LoggedTrial:
    return LoggedTrial(local_path=str(tmp_path / "trial"))


def log(logger: LoggerCallback, trial: LoggedTrial, results: list[dict[str, Any]]) -> None:
    """As an experiment does it, through the hooks."""
    logger.setup()
    logger.on_trial_start(iteration=0, trials=[trial], trial=trial)
    for step, value in enumerate(results):
        logger.on_trial_result(iteration=step, trials=[trial], trial=trial, result=value)
    logger.on_trial_complete(iteration=len(results), trials=[trial], trial=trial)


def json_lines(trial: LoggedTrial) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(trial.local_path, "result.json").read_text().splitlines()]


def csv_rows(trial: LoggedTrial) -> list[dict[str, str]]:
    with Path(trial.local_path, "progress.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_json_has_the_config_and_one_result_a_line(trial: LoggedTrial) -> None:
    log(JsonLoggerCallback(), trial, RESULTS)
    assert json_lines(trial) == RESULTS
    assert json.loads(Path(trial.local_path, "params.json").read_text()) == trial.config


def test_json_takes_whatever_a_result_or_config_holds(trial: LoggedTrial) -> None:
    trial.config = {"f": print, "array": numpy.arange(2), 3: "three", ("a", 1): {1, 2}}
    odd = {"nan": math.nan, "item": numpy.float32(0.5), (1, 2): "pair", "text": "línea\n2"}
    log(JsonLoggerCallback(), trial, [odd])
    (line,) = json_lines(trial)
    assert math.isnan(line.pop("nan"))
    assert line == {"item": 0.5, "(1, 2)": "pair", "text": "línea\n2"}
    params = json.loads(Path(trial.local_path, "params.json").read_text())
    assert params == {"f": repr(print), "array": [0, 1], "3": "three", "('a', 1)": [1, 2]}


def test_a_config_that_a_scheduler_changed_is_written_again(trial: LoggedTrial) -> None:
    logger = JsonLoggerCallback()
    logger.log_trial_start(trial)
    trial.config = {"lr": 0.2}
    logger.log_trial_start(trial)
    assert json.loads(Path(trial.local_path, "params.json").read_text()) == {"lr": 0.2}
    assert [path.name for path in Path(trial.local_path).iterdir()] == ["params.json"]


def test_csv_flattens_and_leaves_the_config_out(trial: LoggedTrial) -> None:
    log(CSVLoggerCallback(), trial, [{**value, "config": trial.config} for value in RESULTS])
    rows = csv_rows(trial)
    assert list(rows[0]) == ["training_iteration", "time_total_s", "loss", "eval/accuracy"]
    assert [float(row["eval/accuracy"]) for row in rows] == [0.1, 0.2, 0.3, 0.4, 0.5]


def test_csv_keeps_columns_that_come_late_or_stay_away(trial: LoggedTrial) -> None:
    log(CSVLoggerCallback(), trial, [{"a": 1}, {"b": 2, "a": 3}, {"b": 'x,"y"\nz'}, {"c": None}])
    assert csv_rows(trial) == [
        {"a": "1", "b": "", "c": ""},
        {"a": "3", "b": "2", "c": ""},
        {"a": "", "b": 'x,"y"\nz', "c": ""},
        {"a": "", "b": "", "c": ""},
    ]


def test_csv_puts_values_under_their_names_after_a_restart(trial: LoggedTrial) -> None:
    log(CSVLoggerCallback(), trial, [{"a": 1, "b": 2}])
    log(CSVLoggerCallback(), trial, [{"b": 4, "a": 3}])
    assert csv_rows(trial) == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]


FILES = [(JsonLoggerCallback, "result.json"), (CSVLoggerCallback, "progress.csv")]


@pytest.mark.parametrize(("logger", "name"), FILES)
def test_a_driver_that_dies_within_any_byte_leaves_a_file_that_goes_on_whole(
    logger: Callable[[], LoggerCallback], name: str, trial: LoggedTrial
) -> None:
    path = Path(trial.local_path, name)
    log(logger(), trial, RESULTS)
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        log(logger(), trial, RESULTS)  # all of them, though some are there
        assert path.read_bytes() == whole, f"cut at {size}"


@pytest.mark.parametrize(("logger", "name"), FILES)
@pytest.mark.parametrize("told_again", range(len(RESULTS)))
def test_results_that_are_told_again_after_a_restart_are_there_once(
    logger: Callable[[], LoggerCallback], name: str, told_again: int, trial: LoggedTrial
) -> None:
    log(logger(), trial, RESULTS[:3])
    log(logger(), trial, RESULTS[told_again if told_again < 3 else 3 :])
    log(logger(), trial, [])
    whole = Path(trial.local_path, name).read_bytes()
    Path(trial.local_path, name).unlink()
    log(logger(), trial, RESULTS)
    assert Path(trial.local_path, name).read_bytes() == whole


@pytest.mark.parametrize("logger", [JsonLoggerCallback, CSVLoggerCallback])
def test_a_result_is_there_once_though_its_config_looks_different_in_each_process(
    logger: Callable[[], LoggerCallback], trial: LoggedTrial
) -> None:
    log(logger(), trial, [{**result(1, loss=1.0), "config": {"model": object()}}])
    log(logger(), trial, [{**result(1, loss=1.0), "config": {"model": object()}}, result(2, loss=0.5)])
    lines = json_lines(trial) if logger is JsonLoggerCallback else csv_rows(trial)
    assert [int(line["training_iteration"]) for line in lines] == [1, 2]


@pytest.mark.parametrize("logger", [JsonLoggerCallback, CSVLoggerCallback])
def test_an_iteration_that_a_trial_did_again_is_another_result(
    logger: Callable[[], LoggerCallback], trial: LoggedTrial
) -> None:
    log(logger(), trial, [result(1, loss=1.0), result(2, loss=0.5), result(2, loss=0.4), result(2, loss=0.4)])
    lines = json_lines(trial) if logger is JsonLoggerCallback else csv_rows(trial)
    assert [int(line["training_iteration"]) for line in lines] == [1, 2, 2, 2]


@pytest.mark.parametrize(("logger", "name"), FILES)
def test_what_was_logged_can_be_read_when_the_step_is_over(
    logger: Callable[[], LoggerCallback], name: str, trial: LoggedTrial
) -> None:
    made = logger()
    made.on_trial_start(iteration=0, trials=[trial], trial=trial)
    sizes = [0]
    for step, value in enumerate(RESULTS):
        made.on_trial_result(iteration=step, trials=[trial], trial=trial, result=value)
        made.on_step_end(iteration=step, trials=[trial])
        sizes.append(Path(trial.local_path, name).stat().st_size)
    made.on_experiment_end(trials=[trial])
    assert sizes == sorted(set(sizes))


def test_every_trial_has_its_own_files_and_a_failed_one_closes_them(tmp_path: Path) -> None:
    trials = [LoggedTrial(trial_id=name, local_path=str(tmp_path / name)) for name in "ab"]
    for logger in (JsonLoggerCallback(), CSVLoggerCallback()):
        for trial in trials:
            logger.log_trial_result(1, trial, {"name": trial.trial_id})
        for trial in trials:
            logger.on_trial_error(iteration=1, trials=trials, trial=trial)
            logger.on_trial_error(iteration=1, trials=trials, trial=trial)  # nothing is open any more
    assert [json_lines(trial) for trial in trials] == [[{"name": "a"}], [{"name": "b"}]]
    assert [csv_rows(trial) for trial in trials] == [[{"name": "a"}], [{"name": "b"}]]


def test_by_default_everything_goes_to_json_csv_and_tensorboard() -> None:
    assert [type(logger) for logger in default_loggers()] == [JsonLoggerCallback, CSVLoggerCallback, TBXLoggerCallback]


@pytest.mark.parametrize("kind", [JsonLoggerCallback, CSVLoggerCallback])
@pytest.mark.parametrize("hook", ["on_step_end", "on_trial_complete", "on_experiment_end"])
def test_a_driver_that_was_stopped_and_lost_its_experiment_adds_nothing(
    kind: type[LoggerCallback], hook: str, trial: LoggedTrial
) -> None:
    """It was told of a result, and another driver took over before the result was in the file."""
    held = [True]

    def check_owner() -> None:
        if not held[0]:
            raise StorageError("taken over")

    logger: Any = kind()
    logger.check_owner = check_owner
    logger.on_trial_start(iteration=0, trials=[trial], trial=trial)
    logger.on_trial_result(iteration=0, trials=[trial], trial=trial, result=RESULTS[0])
    logger.on_step_end(iteration=0, trials=[trial])
    files = sorted(Path(trial.local_path).iterdir())
    before = [file.read_bytes() for file in files]
    logger.on_trial_result(iteration=1, trials=[trial], trial=trial, result=RESULTS[1])
    held[0] = False
    trial.config = {"lr": 0.2}
    logger.on_trial_start(iteration=1, trials=[trial], trial=trial)
    getattr(logger, hook)(iteration=1, trials=[trial], trial=trial)
    logger.on_experiment_end(trials=[trial])
    assert [file.read_bytes() for file in files] == before
