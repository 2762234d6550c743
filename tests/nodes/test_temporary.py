"""What is in a directory for temporary files when a worker is killed at any moment bears its mark."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os, sys, tempfile
from holdfast.worker.temporary import mark_temporary_files

sys.addaudithook(lambda event, args: print(args[0]) if event in ("open", "os.mkdir") else None)
mark_temporary_files(7)
tempfile.mkdtemp()
tempfile.mkstemp()
"""


def made(env: dict[str, str]) -> list[Path]:
    out = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True, timeout=60
    )
    return [Path(line) for line in out.stdout.splitlines()]


def test_no_file_of_a_worker_is_without_its_mark(tmp_path: Path) -> None:
    paths = [path for path in made({"TMPDIR": str(tmp_path)}) if path.parent == tmp_path]
    assert len(paths) == 2
    assert all(path.name.startswith("holdfast-7-") for path in paths)


def test_a_directory_that_is_not_there_is_passed_over(tmp_path: Path) -> None:
    paths = made({"TMPDIR": str(tmp_path / "gone"), "TEMP": str(tmp_path)})
    assert len([path for path in paths if path.parent == tmp_path]) == 2
