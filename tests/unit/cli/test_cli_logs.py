"""``holdfast logs``: what the workers wrote, byte for byte, and as it comes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

from support.cli.cli_shell import PATIENCE_S, finish_job, holdfast, start, start_job, wait_for_checkpoint


def follow(*arguments: object) -> subprocess.Popen[str]:
    return start([sys.executable, "-m", "holdfast", "logs", *map(str, arguments), "--follow"])


def read_until(stream: IO[str] | None, wanted: str) -> list[str]:
    assert stream is not None
    lines = []
    for line in stream:
        lines.append(line.rstrip("\n"))
        if lines[-1] == wanted:
            return lines
    raise AssertionError(f"{wanted!r} did not come: {lines}")


def test_the_latest_attempt_of_all_ranks(finished: Path) -> None:
    lines = holdfast("logs", finished).stdout.splitlines()
    own = ["begins at 2", "step 3", "step 4", "step 5", "last words"]
    assert lines == [
        f"(rank {rank}) {f'rank {rank} {line}' if 'begins' in line else line}" for rank in (0, 1) for line in own
    ]


def test_one_rank_has_no_prefix(finished: Path) -> None:
    assert holdfast("logs", finished, "--rank", 1).stdout.splitlines() == [
        "rank 1 begins at 2",
        "step 3",
        "step 4",
        "step 5",
        "last words",
    ]


def test_an_earlier_attempt(finished: Path) -> None:
    lines = holdfast("logs", finished, "--attempt", 1, "--rank", 1).stdout.splitlines()
    assert lines[:3] == ["rank 1 begins at 0", "step 1", "step 2"]


def test_json(finished: Path) -> None:
    lines = holdfast("logs", finished, "--rank", 0, "--json").stdout.splitlines()
    assert json.loads(lines[1]) == {"attempt": 2, "rank": 0, "line": "step 3"}


def test_any_bytes_are_passed_on(finished: Path) -> None:
    log = finished / "logs" / "attempt-0002" / "rank-0.log"
    log.write_bytes(b"\xff\x00 not text\r\n\x1b[31mred\n")
    command = [sys.executable, "-m", "holdfast", "logs", str(finished), "--rank", "0"]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=True)
    assert done.stdout == log.read_bytes()


def test_what_is_not_there(finished: Path) -> None:
    assert "no logs of attempt 7. It has: 1, 2." in holdfast("logs", finished, "--attempt", 7, code=2).stderr
    assert "no log of rank 9. It has: 0, 1." in holdfast("logs", finished, "--rank", 9, code=2).stderr


def test_a_run_without_logs(golden: Path) -> None:
    done = holdfast("logs", golden)
    assert done.stdout == ""
    assert "has no worker logs" in done.stderr


def test_following_a_run_that_is_over_ends_at_once(finished: Path) -> None:
    assert holdfast("logs", finished, "--follow", "--rank", 0).stdout.splitlines()[-1] == "last words"


def test_following_prints_what_comes_and_ends_with_the_run(tmp_path: Path) -> None:
    job = start_job(tmp_path, wait_at=3)
    wait_for_checkpoint(tmp_path, 3)
    follower = follow(tmp_path / "run", "--rank", 1)
    lines = read_until(follower.stdout, "step 3")
    assert job.poll() is None
    (tmp_path / "go").touch()
    finish_job(job)
    rest, errors = follower.communicate(timeout=PATIENCE_S)
    assert (follower.returncode, errors) == (0, "")
    assert lines + rest.splitlines() == [
        "rank 1 begins at 0",
        *(f"step {step}" for step in range(1, 6)),
        "last words",
    ]


def test_following_goes_over_to_the_next_attempt(tmp_path: Path) -> None:
    job = start_job(tmp_path, wait_at=2, raise_at=4, max_failures=1, steps=6)
    wait_for_checkpoint(tmp_path, 2)
    follower = follow(tmp_path / "run")
    lines = read_until(follower.stdout, "(rank 0) step 2")
    (tmp_path / "go").touch()
    rest, errors = follower.communicate(timeout=PATIENCE_S)
    finish_job(job)
    assert (follower.returncode, errors) == (0, "")
    lines += rest.splitlines()
    of_rank_0 = [line.removeprefix("(rank 0) ") for line in lines if line.startswith("(rank 0)")]
    assert of_rank_0 == [
        "rank 0 begins at 0",
        *(f"step {step}" for step in range(1, 5)),
        "rank 0 begins at 4",
        "step 5",
        "step 6",
        "last words",
    ]


def test_a_follower_is_interrupted_without_a_word(tmp_path: Path) -> None:
    job = start_job(tmp_path, wait_at=3)
    wait_for_checkpoint(tmp_path, 3)
    follower = follow(tmp_path / "run", "--rank", 0)
    read_until(follower.stdout, "step 3")
    follower.send_signal(signal.SIGINT)
    _, errors = follower.communicate(timeout=PATIENCE_S)
    assert (follower.returncode, errors) == (130, "")
    (tmp_path / "go").touch()
    finish_job(job)
