"""What a platform that Holdfast does not run on hears, and when."""

from __future__ import annotations

import subprocess
import sys


def test_windows_is_told_at_once() -> None:
    script = "import sys; sys.platform = 'win32'; import holdfast"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "ImportError: Holdfast does not run on Windows. Use Linux, macOS, or Linux under WSL 2." in done.stderr
