"""What a trial reported is never done again, even if the driver is killed before it heard of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import returned_trials

SCRIPT = Path(returned_trials.__file__)
ENDS_WITHIN_S = 60.0
WHOLE = list(range(1, returned_trials.EPOCHS + 1))


def run(storage: str, notes: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), storage, str(notes)]
    return subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False)


def assert_no_epoch_is_done_twice(storage: str, notes: Path) -> None:
    assert run(storage, notes).returncode == -signal.SIGKILL
    done = run(storage, notes)
    assert done.returncode == 0, done.stderr
    for number in (0, 1):
        assert [int(line) for line in (notes / f"epochs-{number}").read_text().split()] == WHOLE
    assert json.loads(done.stdout.splitlines()[-1]) == [WHOLE, WHOLE]


def test_on_disk(tmp_path: Path) -> None:
    assert_no_epoch_is_done_twice(str(tmp_path), tmp_path)


def test_on_an_object_store(bucket: str, tmp_path: Path) -> None:
    assert_no_epoch_is_done_twice(bucket, tmp_path)
