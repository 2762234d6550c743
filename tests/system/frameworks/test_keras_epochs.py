"""The epochs of a shard where Keras' ``fit`` is called more than once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast.data
import support.frameworks

ROWS = 12
SCRIPT = Path(support.frameworks.__file__).with_name("keras_epochs.py")


@pytest.mark.parametrize(
    ("calls", "shared", "epochs"),
    [
        ([(0, 1), (0, 2), (0, 1)], False, [0, 1, 2, 3]),
        ([(0, 1), (0, 1)], True, [0, 1]),
        ([(2, 3), (3, 4), (7, 8)], False, [2, 3, 7]),  # these count on
    ],
)
def test_each_call_reads_epochs_of_its_own(calls: list[tuple[int, int]], shared: bool, epochs: list[int]) -> None:
    command = [sys.executable, str(SCRIPT), json.dumps(calls), json.dumps(shared)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    by_hand = [epochs[-1] + 1, epochs[-1] + 2]
    assert json.loads(done.stdout.splitlines()[-1]) == [epoch_of(number) for number in [*epochs, *by_hand]]


def epoch_of(number: int) -> list[int]:
    data = holdfast.data.range(ROWS).random_shuffle(seed=1).iterator()
    data.set_epoch(number)
    return [row["id"] for row in data.iter_rows()]
