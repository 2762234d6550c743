"""The driver is killed at random moments, again and again: ``make soak KILLS=50 SEED=0``.

After each kill every process of the run is gone within a second, and the same command resumes from the last commit.
No kill costs ``max_failures``, which is 0 here.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.repository import SUPPORT

KILLS = int(os.environ.get("SOAK_KILLS", "50"))
SEED = int(os.environ.get("SOAK_SEED", "0"))
PATIENCE_S = 120.0
GONE_WITHIN_S = 1.0


def start(job: str, storage: Path, name: str, config: dict[str, object]) -> subprocess.Popen[str]:
    command = [sys.executable, str(SUPPORT / "faults" / job), str(storage), name, json.dumps(config)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def below(pid: int) -> set[int]:
    found, todo = set(), [pid]
    while todo:
        for path in Path(f"/proc/{todo.pop()}/task").glob("*/children"):
            try:
                children = [int(child) for child in path.read_text().split()]
            except OSError:
                continue
            found.update(children)
            todo.extend(children)
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def seconds_until_gone(processes: set[int], since: float) -> float:
    while any(is_alive(pid) for pid in processes):
        assert time.monotonic() - since < PATIENCE_S, f"{processes} outlive their driver"
        time.sleep(0.002)
    return time.monotonic() - since


@pytest.mark.soak
@pytest.mark.skipif(not KILLS, reason="KILLS=0")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("job", "share", "config", "longest_s"),
    [
        ("job.py", 0.7, {"steps": 150, "pause_s": 0.01}, 2.0),
        ("torch_job.py", 0.3, {"steps": 150, "pause_s": 0.02}, 14.0),
    ],
)
def test_driver_kills(job: str, share: float, config: dict[str, object], longest_s: float, tmp_path: Path) -> None:
    moments = random.Random(SEED)
    undisturbed, errors = start(job, tmp_path, "undisturbed", config).communicate(timeout=PATIENCE_S)
    assert undisturbed, errors
    kills, runs, gone_after = 0, 0, []
    while kills < KILLS * share:
        runs += 1
        for _ in range(200):
            process = start(job, tmp_path, f"run-{runs}", config)
            try:
                output, errors = process.communicate(timeout=moments.uniform(0.05, longest_s))
            except subprocess.TimeoutExpired:
                processes = below(process.pid)
                process.kill()
                gone_after.append(seconds_until_gone(processes, time.monotonic()))
                process.communicate(timeout=PATIENCE_S)
                kills += 1
                continue
            assert process.returncode == 0, errors
            assert output == undisturbed, f"run-{runs} ended with other weights (seed {SEED})"
            break
        else:
            raise AssertionError(f"run-{runs} got nowhere in 200 starts")
    print(
        f"\n{job}: {kills} kills over {runs} runs, each ended with the weights of the undisturbed run; all processes "
        f"gone after {statistics.median(gone_after) * 1000:.0f} ms (median), {max(gone_after) * 1000:.0f} ms (longest)"
    )
    assert max(gone_after) < GONE_WITHIN_S
