"""scikit-learn: estimators that learn in parts resume after the last one, and end as if nothing had happened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.drill.content import compare
from support.frameworks.framework_contract import PATIENCE_S, Job, check_kills
from support.repository import ROOT

JOB = "sklearn_job.py"


def test_a_killed_worker_and_a_killed_driver(job: Job) -> None:
    """Compares the numbers of the models: their pickles differ."""
    check_kills(job, worker=5, rank=1, driver=8, rounds=list(range(1, 11)), source=4)


HOLD = """
import os, time

def hold(depth):
    while depth == 8 and os.environ.get("HOLD"):
        time.sleep(0.01)

"""


def test_the_example_of_tuning_continues_after_a_killed_driver(tmp_path: Path) -> None:
    """A drill takes no script with a Tuner. The last trial waits for the kill."""
    example = (ROOT / "examples" / "frameworks" / "sklearn_tuning.py").read_text()
    assert "    tune.report(" in example
    script = tmp_path / "sklearn_tuning.py"
    script.write_text(HOLD + example.replace("    tune.report(", '    hold(config["max_depth"])\n    tune.report('))
    command = [sys.executable, "-W", "ignore", str(script)]
    first = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, env={**os.environ, "HOLD": "1"})
    try:
        _await_report(tmp_path / "runs" / "forests", first)
    finally:
        first.kill()
        first.wait(60)
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    calm = subprocess.run(command, cwd=_made(tmp_path / "calm"), capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout.splitlines()[-1] == calm.stdout.splitlines()[-1]
    assert "max_depth" in done.stdout.splitlines()[-1]
    accuracies = [_accuracies(home / "runs" / "forests") for home in (tmp_path, tmp_path / "calm")]
    assert accuracies[0] == accuracies[1]
    assert len(accuracies[0]) == 3


def _await_report(experiment: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not any(path.stat().st_size for path in experiment.glob("*/result.json")):
        assert process.poll() is None, "the search was over before a trial was seen to report"
        assert time.monotonic() < deadline, "no trial has reported"
        time.sleep(0.005)


def _accuracies(experiment: Path) -> dict[int, float]:
    lines = [json.loads(path.read_text().splitlines()[-1]) for path in experiment.glob("*/result.json")]
    return {line["config"]["max_depth"]: line["accuracy"] for line in lines}


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("undisturbed", "resumed"):
        (tmp_path / name).mkdir()
    return tmp_path / "undisturbed", tmp_path / "resumed"


@pytest.mark.parametrize("estimator", ["SGDClassifier", "MLPClassifier", "RandomForestClassifier"])
def test_a_drill_compares_the_values_of_a_model(estimator: str, pair: tuple[Path, Path]) -> None:
    """A model that was loaded is pickled to other bytes. Fitted further, it has the same values; and a drill names
    those that a lost part changes."""
    import joblib

    _fit(estimator, pair[0], range(4), loads=False)
    _fit(estimator, pair[1], range(4), loads=True)
    assert (pair[0] / "model.joblib").read_bytes() != (pair[1] / "model.joblib").read_bytes()
    assert compare(*pair).differences == []
    expected, found = joblib.load(pair[0] / "model.joblib"), joblib.load(pair[1] / "model.joblib")
    rows, _ = _data()
    assert expected.predict_proba(rows).tolist() == found.predict_proba(rows).tolist()
    _fit(estimator, pair[1], [0, 1, 3], loads=True)
    assert compare(*pair).differences != []


def _data() -> tuple[Any, Any]:
    from sklearn.datasets import make_classification

    data: tuple[Any, Any] = make_classification(400, 8, random_state=0)
    return data


def _fit(estimator: str, directory: Path, parts: Any, *, loads: bool) -> None:
    """Part by part, saved to and loaded from a file between them if ``loads``."""
    import joblib
    from sklearn import ensemble, linear_model, neural_network

    model: Any = {
        "SGDClassifier": lambda: linear_model.SGDClassifier("log_loss", random_state=0),
        "MLPClassifier": lambda: neural_network.MLPClassifier([4], random_state=0),
        "RandomForestClassifier": lambda: ensemble.RandomForestClassifier(0, warm_start=True, random_state=0),
    }[estimator]()
    x, y = _data()
    for part in parts:
        rows = slice(100 * part, 100 * (part + 1))
        if estimator == "RandomForestClassifier":
            model.set_params(n_estimators=model.n_estimators + 3).fit(x[rows], y[rows])
        else:
            model.partial_fit(x[rows], y[rows], classes=[0, 1])
        joblib.dump(model, directory / "model.joblib")
        model = joblib.load(directory / "model.joblib") if loads else model


@pytest.mark.parametrize("compress", [0, "zlib", "gzip", "bz2", "xz", "lzma"])
def test_arrays_in_a_pickle_of_joblib(pair: tuple[Path, Path], compress: Any) -> None:
    """joblib has their bytes between the opcodes. What lies between the fields of a record is not a value."""
    import joblib
    import numpy

    record = numpy.dtype({"names": ["x", "y"], "formats": ["u1", "f8"], "offsets": [0, 8], "itemsize": 16})
    for number, directory in enumerate(pair):
        gaps = numpy.full(32, 7 + number, numpy.uint8).view(record)
        gaps["x"], gaps["y"] = [1, 2], [0.5, 1.5]
        last = numpy.arange(6.0).reshape(2, 3).T + number / 4
        objects = numpy.array(["text", None, 3], dtype=object)
        values = {"numbers": numpy.arange(5), "empty": numpy.zeros((0, 3)), "gaps": gaps, "objects": objects}
        joblib.dump((values, last), directory / "model.joblib", compress=compress)
    assert compare(*pair).differences == [("model.joblib: [1]", "off by up to 0.25")]
