"""What `make demo` shows is true, and a demo that proves nothing does not pass."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.examples.example_shell import EXAMPLES, Shell

# What `make demo` does not install.
BLOCKED = """
import sys

for name in ("pandas", "optuna", "ray", "scipy", "pyarrow", "tensorboardX", "hypothesis", "pytest"):
    sys.modules[name] = None
"""


@pytest.mark.timeout(300)
def test_demo(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    output = shell.run("demo.py")
    assert "this is my last line: SIGKILL" in output
    assert "I continue" in output
    assert output.count("identical") == 2
    assert "DIFFER" not in output
    shell.wait_for_no_process()
    assert shell.temporary_files() == []


def planned(*variables: str) -> str:
    """What `make demo` would do, also if it is `make test` that asks."""
    command = ["make", "--dry-run", "--no-print-directory", "demo", *variables]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    options = {"cwd": EXAMPLES.parent, "env": environment, "timeout": 60}
    return subprocess.run(command, capture_output=True, text=True, check=True, **options).stdout


def test_the_demo_has_a_small_environment_of_its_own(tmp_path: Path) -> None:
    steps = planned(f"VENV={tmp_path / 'missing'}", f"DEMO_VENV={tmp_path / 'demo'}")
    assert f"{tmp_path / 'demo'}/bin/python examples/demo.py" in steps
    assert "-e . numpy" in steps
    assert "[dev]" not in steps


def test_the_demo_uses_the_large_environment_if_it_is_there(tmp_path: Path) -> None:
    (tmp_path / ".ready").touch()
    assert planned(f"VENV={tmp_path}") == f"{tmp_path}/bin/python examples/demo.py\n"
