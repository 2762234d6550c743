"""``holdfast drill`` as a command: a whole drill of a job without a framework, and what it says of wrong input."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.drill import running
from holdfast.drill.stage import Stage
from support.repository import EXAMPLES, SUPPORT

JOB = SUPPORT / "drill" / "drill_job.py"
COMMAND = Path(sys.executable).with_name("holdfast")
PATIENCE_S = 240.0
SCRIPT = """
import tempfile, time
from pathlib import Path
from holdfast import train

checkpoint = train.get_checkpoint()
first = int(Path(checkpoint.path, "step").read_text()) + 1 if checkpoint else 1
for step in range(first, 9):
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "step").write_text(str(step))
        train.report({"step": step}, checkpoint=train.Checkpoint.from_directory(directory))
    time.sleep(0.03)
"""


def drill(*args: str, temp: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "drill", *args],
        env={**os.environ, "TMPDIR": str(temp)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


@pytest.mark.timeout(300)
def test_a_good_script_passes_and_nothing_is_left(tmp_path: Path) -> None:
    done = drill("--fault", "worker-kill@rank=1,step=4", "--fault", "driver-kill@step=6", str(JOB), temp=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "worker-kill@rank=1,step=4" in done.stdout
    assert "2 of 2 faults passed" in done.stdout
    assert "yes, run 2 times" in done.stdout
    assert "so they were not compared: seconds" in done.stdout  # a metric that differs by itself
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(300)
def test_a_bad_script_fails_in_json_and_html_too(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    temp = tmp_path / "temp"
    temp.mkdir()
    faults = ["--fault", "exception@rank=0,step=4"]
    done = drill("--json", "--html", str(page), *faults, str(JOB), "ignores", temp=temp)
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert report["passed"] is False
    assert [finding["code"] for finding in report["findings"]] == ["checkpoint-ignored", "noise"]
    assert report["faults"][0]["recovered"] is True
    assert report["faults"][0]["struck_at_step"] == 4
    text = page.read_text()
    assert "a checkpoint was never read" in text
    assert "<svg" in text
    assert list(temp.iterdir()) == []


@pytest.mark.timeout(300)
@pytest.mark.skipif(not COMMAND.exists(), reason="the package is not installed as a command")
def test_a_script_for_holdfast_run_is_rehearsed_with_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    temp = tmp_path / "temp"
    temp.mkdir()
    run = [str(COMMAND), "run", "--workers", "2", "--max-failures", "1", "--name", "run", str(script)]
    done = drill("--fault", "worker-kill@rank=1,step=5", *run, temp=temp)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 faults passed" in done.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_drill_that_is_ended_leaves_nothing(number: signal.Signals, code: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdfast", "drill", "--only", "worker-kill", str(JOB)]
    process = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(tmp_path)}, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.readline() == "drill: undisturbed\n"
        (directory,) = tmp_path.iterdir()
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == code
        assert "Traceback" not in process.stderr.read()
    assert running.processes(Stage(directory / "undisturbed")) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["nowhere.py"], "does not exist"),
        ([], "no script given"),
        (["--fault", "rain", str(JOB)], "unknown fault 'rain'. The faults are: worker-kill"),
        (["--fault", "worker-kill@rank=x", str(JOB)], "whole numbers"),
        (["--fault", "worker-kill@point=journalled", str(JOB)], "no such point. Use one of before, staged, after"),
        (["--timeout", "0", str(JOB)], "must be greater than 0"),
        (["--html", "/nowhere/report.html", str(JOB)], "--html /nowhere/report.html: cannot be written"),
        (["--only", "worker-kill", str(JOB), "broken"], "with exit code 1: this script does not even start"),
        ([str(EXAMPLES / "tune_auto_resume.py")], "with exit code 1: ValueError: holdfast drill tests training runs"),
        ([str(EXAMPLES / "sine.py")], "made no report. It must call fit()"),
    ],
)
def test_wrong_input_is_said_in_one_line(args: list[str], text: str, tmp_path: Path) -> None:
    done = drill(*args, temp=tmp_path)
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["node-kill", "drain"])
def test_no_node_of_a_named_cluster_is_taken_away(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said before anything is run: nobody is at that address."""
    monkeypatch.setenv("HOLDFAST_ENGINE", "ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    done = drill("--fault", f"{name}@step=4", str(JOB), temp=tmp_path)
    assert done.returncode == 2
    assert f"{name}: other jobs may use the nodes of this Ray cluster" in done.stderr
    assert "undisturbed" not in done.stderr


def test_the_faults_are_listed(tmp_path: Path) -> None:
    done = drill("--list", temp=tmp_path)
    assert done.returncode == 0
    assert re.search(r"driver-kill +report, files, manifest, committed, journalled", done.stdout)
