"""Commands and jobs as processes of their own, as a person starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

JOB = Path(__file__).with_name("watched_job.py")
PATIENCE_S = 120.0
_background: list[subprocess.Popen[str]] = []


def holdfast(
    *arguments: object, code: int = 0, traces: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """``traces``: a traceback of the user's own script is shown, and none of ours."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
    assert traces or "Traceback" not in done.stderr
    assert "holdfast/cli" not in done.stderr
    return done


def holdfast_json(*arguments: object, code: int = 0) -> Any:
    def no_constants(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(holdfast(*arguments, "--json", code=code).stdout, parse_constant=no_constants)


def start(command: list[str]) -> subprocess.Popen[str]:
    """A process that ``end_all`` ends, should the test fail before it does."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    _background.append(process)
    return process


def end_all() -> None:
    while _background:
        with _background.pop() as process:  # closes its pipes and waits for it
            process.kill()


def start_job(storage: Path | str, name: str = "run", **config: Any) -> subprocess.Popen[str]:
    return start([sys.executable, str(JOB), str(storage), name, json.dumps({"steps": 5, **config})])


def finish_job(process: subprocess.Popen[str], code: int = 0) -> None:
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, errors


def wait_for_checkpoint(storage: Path, report: int, name: str = "run") -> None:
    """Wait until the checkpoint of that report or of a later one is committed: it may be deleted again quickly."""
    directory = storage / name / "checkpoints"
    deadline = time.monotonic() + PATIENCE_S
    while not any(int(path.stem.removeprefix("checkpoint_")) >= report for path in directory.glob("*.json")):
        assert time.monotonic() < deadline, f"no checkpoint of report {report} came"
        time.sleep(0.005)


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    """All that is there: names, times of change, content."""
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(root.rglob("*"))
    }


def flip(path: Path, at: int = -3) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
