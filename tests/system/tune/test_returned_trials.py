"""What a trial reported is never repeated, even if the driver is killed before it heard of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.object_stores.proxy import Fault, FaultProxy
from support.object_stores.servers import S3Server
from support.tune import returned_trials

SCRIPT = Path(returned_trials.__file__)
ENDS_WITHIN_S = 120.0
WHOLE = list(range(1, returned_trials.EPOCHS + 1))


def run(storage: str, notes: Path, *how: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), storage, str(notes), *how]
    return subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False)


def assert_no_epoch_is_done_twice(notes: Path, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    for number in (0, 1):
        assert [int(line) for line in (notes / f"epochs-{number}").read_text().split()] == WHOLE
    assert json.loads(done.stdout.splitlines()[-1]) == [WHOLE, WHOLE]


def test_on_disk(tmp_path: Path) -> None:
    assert run(str(tmp_path), tmp_path).returncode == -signal.SIGKILL
    assert_no_epoch_is_done_twice(tmp_path, run(str(tmp_path), tmp_path))


def test_on_an_object_store(bucket: str, tmp_path: Path) -> None:
    assert run(bucket, tmp_path).returncode == -signal.SIGKILL
    assert_no_epoch_is_done_twice(tmp_path, run(bucket, tmp_path))


def test_an_agent_is_killed_on_disk(tmp_path: Path) -> None:
    assert_no_epoch_is_done_twice(tmp_path, run(str(tmp_path), tmp_path, "agent"))


def test_an_agent_is_killed_on_an_object_store(bucket: str, tmp_path: Path) -> None:
    assert_no_epoch_is_done_twice(tmp_path, run(bucket, tmp_path, "agent"))


def test_what_an_earlier_attempt_left_to_commit_survives_the_driver(
    s3: S3Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FaultProxy(s3.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        proxy.arm("commit", Fault("503", seconds=3600))
        assert run(bucket, tmp_path, "later").returncode == -signal.SIGKILL
        proxy.disarm()
        assert_no_epoch_is_done_twice(tmp_path, run(bucket, tmp_path, "later"))
