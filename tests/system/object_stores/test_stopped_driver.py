"""A driver on S3 that is stopped for longer than its lease and continued: another one has the run, and keeps it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import holdfast.train as train
from support.object_stores import remote_job
from support.object_stores.remote_job import expected

WITHIN_S = 120.0


def start(storage: str, config: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, remote_job.__file__, storage, "run", json.dumps(config)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def await_that(condition: Callable[[], bool], *living: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert all(process.poll() is None for process in living), [p.communicate()[1] for p in living]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_stopped_driver_that_continues_leaves_its_successor_s_files_alone(
    bucket: str, marks: str, tmp_path: Path
) -> None:
    """The workers of the first driver wait while it is stopped, and report more when it continues; those of the second
    have work until the first one has ended."""

    def notes(of: subprocess.Popen[str], kind: str) -> int:
        path = Path(marks, f"{of.pid}", "notes")
        return path.read_text().count(f"{kind} 0 ") if path.exists() else 0

    steps = 60
    continued, ended = Path(marks, "continued"), Path(marks, "ended")
    config = {"steps": steps, "marks_by_driver": marks}
    first = start(bucket, {**config, "holds": {"20": str(continued)}})
    second = None
    try:
        await_that(lambda: notes(first, "report") > 5, first)
        first.send_signal(signal.SIGSTOP)
        second = start(bucket, {**config, "holds": {"50": str(ended)}})
        await_that(lambda: notes(second, "report") > 10, second)
        continued.touch()
        first.send_signal(signal.SIGCONT)
        _, complaint = first.communicate(timeout=WITHIN_S)
        assert first.returncode == 1
        assert "has been taken over by" in complaint
        ended.touch()
        output, errors = second.communicate(timeout=WITHIN_S)
        assert output.split()[-1:] == [expected(steps)], errors
    finally:
        for process in filter(None, (first, second)):
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.communicate(timeout=WITHIN_S)
    assert not [*(tmp_path / "scratch").glob("*/*")], "files are left on the machine"
    result = train.Result.from_path(f"{bucket}/run")
    assert [row["step"] for row in result.metrics_dataframe.to_dict("records")] == [*range(1, steps + 1)]
    verify = [sys.executable, "-m", "holdfast", "verify", f"{bucket}/run"]
    verified = subprocess.run(verify, capture_output=True, text=True, timeout=WITHIN_S)
    assert verified.returncode == 0, verified.stdout + verified.stderr
