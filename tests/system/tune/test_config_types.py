"""Configs have the types that the script wrote: in the trial, in its result, and after the driver was interrupted."""

from __future__ import annotations

import enum
import os
import signal
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest

from holdfast import tune
from holdfast.errors import TuneError
from holdfast.tune.search.optuna import OptunaSearch


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Layer(NamedTuple):
    units: int
    rate: float


class Model:
    """What cannot be stored."""

    def __init__(self, number: int) -> None:
        self.number = number


def described(value: Any) -> str:
    if isinstance(value, Model):
        return f"Model {value.number}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {described(item)}" for key, item in value.items()) + "}"
    if type(value) in (list, tuple):
        return f"{type(value).__name__}({', '.join(map(described, value))})"
    return getattr(value, "__qualname__", f"{type(value).__name__} {value!r}")


def tells(config: dict[str, Any]) -> dict[str, Any]:
    return {"config_was": described(config), "x": config.get("x", 0)}


class Interrupts(tune.Callback):
    """After the first trial."""

    def on_trial_complete(self, *_args: Any, **_info: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)


def search(storage: Path, space: dict[str, Any], callbacks: Any = None, search_alg: Any = None) -> tune.Tuner:
    return tune.Tuner(
        tells,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="x", mode="max", max_concurrent_trials=1, num_samples=1, search_alg=search_alg
        ),
        run_config=tune.RunConfig(storage_path=str(storage), name="types", verbose=0, callbacks=callbacks),
    )


STORED = {
    "pair": (1, (2.5, "x")),
    "layer": Layer(8, 0.1),
    "size": Size.LARGE,
    "key": b"\x00\xff",
    "path": Path("/data"),
    "array": numpy.arange(3),
    "rate": numpy.float32(0.1),
    "names": {"a"},
    "by_number": {1: (2,)},
}


def test_types_survive_an_interrupted_driver(tmp_path: Path) -> None:
    space = {**STORED, "x": tune.grid_search(numpy.arange(2)), "y": tune.grid_search([(1, Size.SMALL)])}
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path, space, [Interrupts()]).fit()
    restored = tune.Tuner.restore(str(tmp_path / "types"), tells, run_config=tune.RunConfig(verbose=0))
    assert described(restored._definition.param_space["layer"]) == described(STORED["layer"])
    grid = restored.fit()
    assert [int(result.config["x"]) for result in grid] == [0, 1]
    for result in grid:
        assert result.metrics["config_was"] == described(result.config)
        assert described({**result.config, "x": 0}) == described({**STORED, "x": 0, "y": (1, Size.SMALL)})


def objects(first: int) -> dict[str, Any]:
    return {
        "in_tuple": tune.grid_search([(Model(first), 1), (Model(first + 1), 2)]),
        "in_dict": tune.choice([{"model": Model(first + 2), "rate": tune.uniform(0, 1)}]),
        "sampled": tune.sample_from(lambda config: Model(config["in_tuple"][1] + first)),
        "constant": [Model(first + 3)],
        "kind": Model,
    }


def test_objects_are_taken_from_the_space_that_is_passed_again(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path, objects(10), [Interrupts()]).fit()
    with pytest.raises(ValueError, match=r"param_space=\.\.\.\): pass it again"):
        tune.Tuner.restore(str(tmp_path / "types"), tells)
    grid = tune.Tuner.restore(
        str(tmp_path / "types"), tells, param_space=objects(10), run_config=tune.RunConfig(verbose=0)
    ).fit()
    assert grid.num_errors == 0
    for result in grid:
        assert result.metrics["config_was"] == described(result.config)
        assert result.config["sampled"].number == 10 + result.config["in_tuple"][1]


def test_what_is_lost_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path, {"x": tune.sample_from(lambda: Model(1)), "y": tune.grid_search([1, 2])}, [_Early()]).fit()
    other = {"x": tune.sample_from(lambda: 3), "y": tune.grid_search([5, 6])}
    with pytest.raises(TuneError, match="has x, which cannot be stored"):
        tune.Tuner.restore(
            str(tmp_path / "types"), tells, param_space=other, run_config=tune.RunConfig(verbose=0)
        ).fit()


class _Early(tune.Callback):
    """While a trial runs."""

    def on_trial_start(self, *_args: Any, **_info: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)


def test_optuna_takes_what_is_not_json(tmp_path: Path) -> None:
    def space() -> dict[str, Any]:
        return {
            "x": tune.uniform(0, 1),
            "path": Path("/data"),
            "array": numpy.zeros(2),
            "kind": tune.choice([Model, Layer]),
            "function": tune.choice([tells]),
            "object": Model(1),
        }

    tuner = search(tmp_path, space(), [Interrupts()], OptunaSearch(seed=1))
    tuner._definition.tune_config.num_samples = 3
    with pytest.raises(KeyboardInterrupt):
        tuner.fit()
    tuner = search(tmp_path, space(), None, OptunaSearch(seed=1))
    tuner._definition.tune_config.num_samples = 3
    grid = tuner.fit()
    assert grid.num_errors == 0
    assert len(grid) == 3
    for result in grid:
        assert result.metrics["config_was"] == described(result.config)
