"""Aim and Comet themselves, each alone in a fresh environment: what trials report is in their files on disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from test_extras import PATIENCE_S, Environment

from support.repository import ROOT

pytestmark = [pytest.mark.extras, pytest.mark.timeout(PATIENCE_S)]
SEARCH = """
import os
os.environ["HOLDFAST_DISPLAY"] = "off"
from holdfast import tune


def train_fn(config):
    for step in range(3):
        tune.report({"loss": config["a"]["x"] * step, "nested": {"acc": step / 10}, "word": "w"})


def search(callback):
    space = {"a": {"x": tune.grid_search([1.0, 2.0])}, "name": "n"}
    run = tune.RunConfig(storage_path=os.path.abspath("runs"), name="search", verbose=0, callbacks=[callback])
    return tune.Tuner(train_fn, param_space=space, run_config=run).fit()


"""
AIM = f"""{SEARCH}
from holdfast.tune.logger.aim import AimLoggerCallback

results = search(AimLoggerCallback(system_tracking_interval=None))
import aim

found = {{}}
for name in aim.Repo("runs/search").list_all_runs():
    run = aim.Run(name, repo="runs/search", system_tracking_interval=None)
    assert run.experiment == "search", run.experiment
    metrics = {{metric.name: sorted(metric.values.sparse_numpy()[1]) for metric in run.metrics()}}
    assert metrics["ray/tune/nested/acc"] == [0.0, 0.1, 0.2], metrics
    found[run["trial_id"]] = run["hparams"]["a/x"], metrics["ray/tune/loss"], run["trial_log_dir"]
expected = {{
    result.metrics["trial_id"]: (x, [0.0, x, 2 * x], result.path) for x, result in zip((1.0, 2.0), results)
}}
assert found == expected, (found, expected)
"""
COMET = f"""{SEARCH}
import json
import pathlib
import zipfile
from holdfast.tune.logger.comet import CometLoggerCallback

options = {{"offline_directory": os.path.abspath("comet"), "project_name": "p", "workspace": "w"}}
results = search(CometLoggerCallback(online=False, tags=["t"], **options))
found = {{}}
for archive in pathlib.Path("comet").glob("*.zip"):
    with zipfile.ZipFile(archive) as file:
        messages = [json.loads(line)["payload"] for line in file.read("messages.json").splitlines()]
    metrics = [message["metric"] for message in messages if message.get("metric")]
    others = {{message["key"]: message["value"] for message in messages if "key" in message and "value" in message}}
    losses = [(metric["step"], metric["metricValue"]) for metric in metrics if metric["metricName"] == "loss"]
    given = [message["param"] for message in messages if message.get("param")]
    parameters = {{one["paramName"]: one.get("paramValue") for one in given}}
    assert {{"nested/acc", "training_iteration"}} <= {{metric["metricName"] for metric in metrics}}, metrics
    found[others["trial_id"]] = parameters["a/x"], losses
expected = {{
    result.metrics["trial_id"]: (x, [(1, 0.0), (2, x), (3, 2 * x)]) for x, result in zip((1.0, 2.0), results)
}}
assert found == expected, (found, expected)
"""


@pytest.mark.parametrize(("package", "script"), [("aim", AIM), ("comet-ml", COMET)])
def test_a_logger_with_its_package(package: str, script: str, tmp_path: Path) -> None:
    environment = Environment(tmp_path)
    environment.install(str(ROOT))
    file = tmp_path / "script.py"
    file.write_text(script)
    without = environment.run(str(file))
    assert without.returncode != 0
    assert f"pip install {package}" in without.stderr, without.stderr
    shutil.rmtree(tmp_path / "work")
    environment.install(package)
    done = environment.run(str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(tmp_path / "venv")
