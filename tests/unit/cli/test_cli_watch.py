"""``holdfast watch``: what comes is shown as it comes, with and without a terminal, and it ends with the run."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from support.cli.cli_shell import PATIENCE_S, end_all, finish_job, holdfast, start, start_job, wait_for_checkpoint


def watch(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "holdfast", "watch", *map(str, arguments)]


@pytest.mark.parametrize(("name", "state"), [("finished", "finished"), ("failed", "failed"), ("killed", "interrupted")])
def test_a_run_that_is_over_is_shown_once(storage: Path, name: str, state: str) -> None:
    lines = holdfast("watch", storage / name).stdout.splitlines()
    assert lines[0].endswith("driver 1 started")
    assert lines[-1].endswith(f"the run is {state}")


def test_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    job = start_job(tmp_path, raise_at=2, max_failures=1, wait_at=3)
    wait_for_checkpoint(tmp_path, 3)
    process = start(watch(tmp_path / "run", "--interval", "0.1"))
    assert process.stdout is not None
    seen: list[str] = []
    while not any("report 3: step 3" in line for line in seen):
        seen.append(next(process.stdout))
    assert any("planned failure at 2 [user error]; retry 1 of 1" in line for line in seen)
    (tmp_path / "go").touch()
    finish_job(job)
    rest, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (0, "")
    lines = rest.splitlines()
    assert any("  report 5" in line and "step 5, loss 0.2" in line for line in lines)
    assert lines[-1].endswith("the run is finished")


def test_json_has_an_object_for_each_change(tmp_path: Path) -> None:
    job = start_job(tmp_path, wait_at=3)
    wait_for_checkpoint(tmp_path, 3)
    process = start(watch(tmp_path / "run", "--json", "--interval", "0.1"))
    assert process.stdout is not None
    first = json.loads(next(process.stdout))
    assert (first["state"], first["reports"], first["world_size"], first["attempt"]) == ("running", 3, 2, 1)
    (tmp_path / "go").touch()
    finish_job(job)
    rest, _ = process.communicate(timeout=PATIENCE_S)
    last = json.loads(rest.splitlines()[-1])
    assert (last["state"], last["reports"], last["metrics"]) == ("finished", 5, {"step": 5, "loss": 0.2})
    assert last["last_event"]["kind"] == "end"
    changes = [{k: v for k, v in json.loads(line).items() if k not in ("time", "rate")} for line in rest.splitlines()]
    assert all(one != other for one, other in itertools.pairwise(changes))


def test_a_terminal_gets_a_picture_that_fits_it(storage: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 9, 40, 0, 0))
        process = subprocess.Popen(watch(storage / "finished"), stdout=theirs, stderr=subprocess.PIPE)
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            shown += piece
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, errors) == (0, b"")
    finally:
        os.close(ours)
    picture = shown.decode().rpartition("\x1b[J")[2].replace("\r\n", "\n").splitlines()
    assert len(picture) < 9
    assert max(map(len, picture)) < 40
    assert any(line.startswith("state       finished") for line in picture)


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    job = start_job(tmp_path, wait_at=3)
    wait_for_checkpoint(tmp_path, 3)
    process = start(watch(tmp_path / "run"))
    assert process.stdout is not None
    next(process.stdout)
    process.send_signal(2)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (130, "")
    (tmp_path / "go").touch()
    finish_job(job)
    end_all()


def test_wrong_input(storage: Path) -> None:
    for interval in ("0", "-1", "often", "nan"):
        assert (
            "use a number of seconds greater than 0"
            in holdfast("watch", storage / "finished", f"--interval={interval}", code=2).stderr
        )
