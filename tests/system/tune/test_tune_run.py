"""``tune.run``, ``run_experiments`` and ``ExperimentAnalysis``: the older way, on real trials."""

from __future__ import annotations

import json
import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.tune import Experiment, ExperimentAnalysis
from holdfast.tune.experiment import Trial


def saving(config: dict[str, Any]) -> None:
    assert tune.get_context().get_trial_resources().required_resources == {"CPU": 0.5}
    for step, loss in enumerate(config["losses"]):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "step").write_text(str(step))
            tune.report({"loss": loss, "step": step}, checkpoint=tune.Checkpoint(directory))


class Steps(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.count = 0

    def step(self) -> dict[str, Any]:
        self.count += 1
        if self.config.get("fails"):
            raise OSError("on purpose")
        return {"count": self.count, "done": self.count == 4}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"count": self.count}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.count = checkpoint["count"]

    def _export_model(self, export_formats: list[str], export_dir: str) -> dict[str, str]:
        path = os.path.join(export_dir, "model.json")
        Path(path).write_text(json.dumps({"formats": export_formats, "count": self.count}))
        return {"model": path}


def test_run_and_its_analysis(tmp_path: Path) -> None:
    found = tune.run(
        saving,
        config={"losses": tune.grid_search([[9, 2, 5], [8, 1, 7]]), "kind": tune.grid_search([Steps])},
        metric="loss",
        mode="min",
        resources_per_trial={"cpu": 0.5},
        scheduler="fifo",
        search_alg="random",
        checkpoint_config=tune.CheckpointConfig(checkpoint_score_attribute="loss", checkpoint_score_order="min"),
        storage_path=tmp_path,
        name="older",
        verbose=0,
    )
    assert isinstance(found.best_trial, Trial)
    assert found.best_config == {"losses": [9, 2, 5], "kind": Steps}
    assert found.get_best_config(scope="all")["losses"] == [8, 1, 7]
    assert found.best_result["loss"] == 5
    assert [metrics["loss"] for _, metrics in found.trials[1].result.best_checkpoints] == [8, 7, 1]
    read = pickle.loads(pickle.dumps(ExperimentAnalysis(tmp_path / "older")))
    for analysis in (found, read):
        assert analysis.experiment_path == str(tmp_path / "older")
        assert analysis.get_best_logdir() == analysis.best_logdir == analysis.best_trial.logdir
        with analysis.best_checkpoint.as_directory() as directory:
            assert Path(directory, "step").read_text() == "1"
        assert analysis.get_last_checkpoint(analysis.best_logdir) == analysis.best_trial.checkpoint
        assert sorted(analysis.dataframe()["loss"]) == [5, 7]
        assert sorted(analysis.dataframe("loss", "min")["loss"]) == [1, 2]
        assert [list(frame["loss"]) for frame in analysis.trial_dataframes.values()] == [[9, 2, 5], [8, 1, 7]]
        assert analysis.best_trial.metric_analysis["loss"]["avg"] == pytest.approx(16 / 3)
        assert list(analysis.results_df["loss"]) == [5, 7]
        assert set(analysis.get_all_configs()) == set(analysis.results) == {t.trial_id for t in analysis.trials}
        assert analysis.best_dataframe.shape[0] == 3
        grid = tune.ResultGrid(analysis)
        assert (grid.num_terminated, grid.num_errors, grid.experiment_path) == (2, 0, analysis.experiment_path)
        assert grid.get_best_result(scope="all").config["losses"] == [8, 1, 7]


def test_experiments_export_and_start_from_a_checkpoint(tmp_path: Path) -> None:
    where = {"storage_path": str(tmp_path), "export_formats": ["onnx"]}
    first, second = tune.run_experiments(
        [Experiment("all", Steps, **where), {"some": {"run": Steps, "stop": {"count": 2}, **where}}], verbose=0
    )
    exported = [json.loads(Path(trial.logdir, "model.json").read_text()) for trial in (first, second)]
    assert exported == [{"formats": ["onnx"], "count": 4}, {"formats": ["onnx"], "count": 2}]
    assert second.checkpoint is not None
    again = tune.run(Steps, restore=second.checkpoint.path, storage_path=tmp_path, name="again", verbose=0)
    assert [row["count"] for row in again.trials[0].rows] == [3, 4]
    assert [row["training_iteration"] for row in again.trials[0].rows] == [1, 2]


def test_trials_that_fail(tmp_path: Path) -> None:
    given: dict[str, Any] = {"storage_path": tmp_path, "name": "bad", "verbose": 0, "config": {"fails": True}}
    with pytest.raises(tune.TuneError, match=r"did not complete: Steps_\w+ \(ERROR\)"):
        tune.run(Steps, **given)
    again = tune.run(Steps, **given, resume="AUTO+ERRORED", raise_on_failed_trial=False)
    assert [trial.status for trial in again.trials] == ["ERROR"]
    with pytest.raises(ValueError, match='"AUTO"'):
        tune.run(Steps, **given, resume="PROMPT")
    with pytest.raises(RuntimeError, match="nothing"):
        tune.run(Steps, storage_path=tmp_path, name="nothing", resume=True)
    with pytest.raises(ValueError, match="is a run, not an experiment"):
        ExperimentAnalysis(again.trials[0].logdir)
    with pytest.raises(ValueError, match="pass metric and mode"):
        _ = again.best_config
    with pytest.raises(ValueError, match="only a class"):
        tune.run(saving, export_formats=["onnx"])
    with pytest.raises(ValueError, match="a function saves when"):
        tune.run(saving, checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=2))
    with pytest.raises(tune.TuneError, match="names no trainable"):
        tune.run_experiments({"empty": {}})
