"""The callbacks of ``holdfast.tune.integration`` report from trials, and a killed trial is tried again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.frameworks.framework_contract import HERE


def test_each_framework_reports_its_rounds_and_its_model(tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "tune_job.py"), str(tmp_path)]
    env = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "lightning": [4, ["line.ckpt"], True],
        "keras": [4, ["model.keras"], True],
        "xgboost": [4, ["model.ubj"], True],
        "lightgbm": [4, ["model.txt"], True],
    }
    assert (tmp_path / "struck").exists()


def test_each_framework_reports_metrics_alone(tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "tune_metrics_job.py"), str(tmp_path)]
    env = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {name: [3, True, True] for name in ("lightning", "keras", "xgboost", "lightgbm")}


@pytest.mark.parametrize(
    ("framework", "file"),
    [("xgboost", "model.ubj"), ("lightgbm", "model.txt"), ("tensorflow", "model.keras"), ("jax", "w.npy")],
)
def test_a_trainer_is_a_trainable(framework: str, file: str, tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "tuned_trainer_job.py"), str(tmp_path), framework]
    env = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    value, rounds, files = json.loads(done.stdout.splitlines()[-1])
    assert (value, rounds) == (4, 4), "the better of two trials, and its rounds"
    assert file in files
