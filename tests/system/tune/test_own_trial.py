"""What is a trial's own: its working directory, its place in storage. And what a script's seeds mean for a search."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

from holdfast import tune


def run_config(storage: Path, name: str = "own") -> tune.RunConfig:
    return tune.RunConfig(storage_path=str(storage), name=name, verbose=0)


def keeps_a_file(config: dict[str, Any]) -> dict[str, Any]:
    """As Ray's example of population based training does: it saves under a relative path, and finds that again."""
    saved = Path("my_model", "number")
    before = saved.read_text() if saved.exists() else ""
    saved.parent.mkdir(exist_ok=True)
    saved.write_text(str(config["x"]))
    return {"before": before, "cwd": os.getcwd(), "script": os.environ.get("TUNE_ORIG_WORKING_DIR", "")}


@pytest.mark.usefixtures("in_tmp_path")
class TestWorkingDirectory:
    @pytest.fixture
    def in_tmp_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)

    def test_each_trial_has_its_own(self, tmp_path: Path) -> None:
        space = {"x": tune.grid_search([1, 2, 3])}
        grid = tune.Tuner(keeps_a_file, param_space=space, run_config=run_config(tmp_path)).fit()
        assert [result.metrics["before"] for result in grid] == [""] * 3
        assert len({result.metrics["cwd"] for result in grid}) == 3
        for result in grid:
            assert result.metrics["script"] == str(tmp_path)
            assert Path(result.path, "working_dir", "my_model", "number").read_text() == str(result.config["x"])
        assert not (tmp_path / "my_model").exists()

    @pytest.mark.parametrize("way", ["TuneConfig", "environment"])
    def test_it_stays_the_scripts_on_request(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
        config = tune.TuneConfig(chdir_to_trial_dir=way != "TuneConfig")
        if way == "environment":
            monkeypatch.setenv("RAY_CHDIR_TO_TRIAL_DIR", "0")
        space = {"x": tune.grid_search([1])}
        grid = tune.Tuner(keeps_a_file, param_space=space, tune_config=config, run_config=run_config(tmp_path)).fit()
        assert grid[0].metrics["cwd"] == str(tmp_path)


IMPORTS = """
from holdfast import tune

def trial(config):
    import beside  # found in the script's directory, by the empty entry of sys.path
    return {"value": beside.VALUE}

if __name__ == "__main__":
    run = tune.RunConfig(storage_path="results", name="imports", verbose=0)
    print(tune.Tuner(trial, run_config=run).fit()[0].metrics["value"])
"""


def test_modules_beside_the_script_are_found_from_there(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("VALUE = 42\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    command = [sys.executable, "-c", IMPORTS]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout == "42\n", done.stderr


def saves_if_first(config: dict[str, Any]) -> None:
    """Reports from what it begins; trial 0 leaves a checkpoint."""
    found = tune.get_checkpoint() is not None
    Path("file").write_text("x")
    os.mkdir("saved")
    Path("saved", "x").write_text(str(config["x"]))
    tune.report({"found": found}, checkpoint=tune.Checkpoint.from_directory("saved"))


@pytest.mark.parametrize("name", ["same", "journal"])
def test_two_trials_never_share_a_directory(tmp_path: Path, name: str) -> None:
    """Nor has one the name of a directory that is the experiment's."""
    grid = tune.Tuner(
        saves_if_first,
        param_space={"x": tune.grid_search([1, 2])},
        tune_config=tune.TuneConfig(trial_dirname_creator=lambda _trial: name, max_concurrent_trials=1),
        run_config=run_config(tmp_path),
    ).fit()
    assert [result.metrics["found"] for result in grid] == [False, False]
    assert len({result.path for result in grid}) == 2
    assert [Path(result.checkpoint.path, "x").read_text() for result in grid] == ["1", "2"]


def gives_back(config: dict[str, Any]) -> dict[str, Any]:
    return {"x": config["x"]}


@pytest.mark.parametrize("seed", [random.seed, numpy.random.seed], ids=["random", "numpy"])
def test_a_seed_before_fit_seeds_the_search(tmp_path: Path, seed: Any) -> None:
    state, numpys = random.getstate(), numpy.random.get_bit_generator()
    numpy.random.set_bit_generator(numpy.random.MT19937())  # unseeded, as at import
    drawn = []
    try:
        for number in range(2):
            seed(1234)
            drawn += [_draws(tmp_path, f"{number}-a"), _draws(tmp_path, f"{number}-b")]
    finally:
        random.setstate(state)
        numpy.random.set_bit_generator(numpys)
    assert drawn[0] == drawn[2]
    assert drawn[1] == drawn[3]
    assert drawn[0] != drawn[1], "the second search of a script is another one"


def _draws(storage: Path, name: str) -> list[float]:
    space = {"x": tune.uniform(0, 1)}
    config = tune.TuneConfig(num_samples=2)
    grid = tune.Tuner(gives_back, param_space=space, tune_config=config, run_config=run_config(storage, name)).fit()
    return [result.metrics["x"] for result in grid]
