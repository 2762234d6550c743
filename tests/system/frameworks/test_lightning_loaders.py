"""Loaders in Lightning that the run knows, and those that it does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import support.frameworks

SCRIPT = Path(support.frameworks.__file__).with_name("lightning_loaders.py")


def test_a_step_that_fetches_its_batch_has_consumed_it() -> None:
    """The third step is the last one of the epoch: the next one begins."""
    plain, shard = printed("fetches")
    assert plain == [1, 2, 0]
    assert shard == [[[4, 16]], [[8, 16]], None]


def test_a_loader_may_have_a_take_of_its_own() -> None:
    assert len(printed("foreign")) == 3


def printed(what: str) -> list[Any]:
    done = subprocess.run([sys.executable, str(SCRIPT), what], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found
