"""What a restore takes over without being told, what it asks for, and that it starts nothing where nothing is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.engine.local.local_engine import LocalEngine


def trainable(config: dict[str, Any]) -> dict[str, Any]:
    return {"x": config["x"]}


def tuner(storage: Path, **run: Any) -> tune.Tuner:
    options = {"name": "done", "storage_path": str(storage), "verbose": 0, **run}
    return tune.Tuner(trainable, param_space={"x": tune.grid_search([1, 2])}, run_config=tune.RunConfig(**options))


def test_a_restore_of_what_has_finished_starts_no_node_and_is_as_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    first = tuner(tmp_path).fit()

    def refused(*_args: Any) -> None:
        raise AssertionError("a node was asked for")

    monkeypatch.setattr(LocalEngine, "open", refused)
    again = tune.Tuner.restore(str(tmp_path / "done"), trainable).fit()
    assert [result.metrics for result in again] == [result.metrics for result in first]
    assert capfd.readouterr() == ("", "")


def test_more_samples_run_after_all_had_finished(tmp_path: Path) -> None:
    tuner(tmp_path).fit()
    more = tune.TuneConfig(num_samples=2)
    grid = tune.Tuner.restore(str(tmp_path / "done"), trainable, tune_config=more).fit()
    assert sorted(result.metrics["x"] for result in grid) == [1, 1, 2, 2]


def test_callbacks_that_are_not_passed_again_are_named(tmp_path: Path) -> None:
    class Mine(tune.Callback):
        pass

    tuner(tmp_path, callbacks=[Mine()]).fit()
    with pytest.warns(UserWarning, match=r"Mine are not stored, and are not called .* run_config=RunConfig\(callb"):
        tune.Tuner.restore(str(tmp_path / "done"), trainable)
