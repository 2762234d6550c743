"""What the workers of one fit() have imported is there for the next one of the script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.train import two_fits


def test_the_second_fit_of_a_script_starts_warm(tmp_path: Path) -> None:
    command = [sys.executable, two_fits.__file__, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.stdout.split() == ["False", "True"], done.stderr
