"""A driver of an experiment on S3 that is stopped for longer than its lease and continued: another one has it now."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from holdfast import tune
from support.tune import stopped_experiment
from support.tune.stopped_experiment import EPOCHS, TRIALS

WITHIN_S = 120.0


def await_that(condition: Callable[[], bool], living: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert living.poll() is None, living.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_stopped_driver_that_continues_leaves_its_successor_s_files_alone(bucket: str, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()

    def start(role: str) -> subprocess.Popen[str]:
        command = [sys.executable, stopped_experiment.__file__, f"{bucket}/runs", str(marks), role]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def epochs(role: str) -> int:
        return len((marks / role).read_text().splitlines()) if (marks / role).exists() else 0

    first = start("first")
    second = None
    try:
        await_that(lambda: epochs("first") > 5, first)
        first.send_signal(signal.SIGSTOP)
        second = start("second")
        await_that(lambda: epochs("second") > 10, second)
        (marks / "continued").touch()
        first.send_signal(signal.SIGCONT)
        _, complaint = first.communicate(timeout=WITHIN_S)
        assert first.returncode == 1
        assert "has been taken over by" in complaint
        (marks / "ended").touch()
        _, errors = second.communicate(timeout=WITHIN_S)
        assert second.returncode == 0, errors
    finally:
        for process in filter(None, (first, second)):
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.communicate(timeout=WITHIN_S)
    assert not [*(tmp_path / "scratch").glob("*/*")], "files are left on the machine"
    url = f"{bucket}/runs/experiment"
    grid = tune.Tuner.restore(url, stopped_experiment.train_fn).get_results()
    rows = [result.metrics_dataframe["epoch"].tolist() for result in grid]
    assert rows == [[*range(1, EPOCHS + 1)]] * TRIALS
    verify = [sys.executable, "-m", "holdfast", "verify", url]
    verified = subprocess.run(verify, capture_output=True, text=True, timeout=WITHIN_S)
    assert verified.returncode == 0, verified.stdout + verified.stderr
