"""Guide 004's script as an example: it runs as it is, and all that it tells of comes to pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast.train as train
from support.repository import EXAMPLES

EXAMPLE = EXAMPLES / "elastic.py"


@pytest.mark.timeout(400)
def test_the_example(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE), "--storage-path", str(tmp_path), "--run-name", "run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=360)
    assert done.returncode == 0, done.stdout + done.stderr
    for line in ("the second node is lost", "the third node will go in 60 s", "1 worker: that is all"):
        assert line in done.stdout
    assert "[1, 3, 4] workers" in done.stdout
    result = train.Result.from_path(str(tmp_path / "run"))
    assert [failure.kind for failure in result.ledger.failures] == ["node lost"]
    workers = result.metrics_dataframe["workers"].tolist()
    assert [n for i, n in enumerate(workers) if i == 0 or workers[i - 1] != n] == [1, 3, 1, 4, 1]
