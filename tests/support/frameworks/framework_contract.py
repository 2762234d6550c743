"""What every framework must show: a killed worker and a killed driver cost nothing but time."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

PATIENCE_S = 300.0
HERE = Path(__file__).parent


class Job:
    """Runs of one job, each in a directory of its own."""

    def __init__(self, script: str, home: Path) -> None:
        self.script, self.home = script, home

    def run(self, name: str, **config: Any) -> dict[str, Any]:
        done = self._start(name, config)
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def run_until_killed(self, name: str, **config: Any) -> None:
        done = self._start(name, config)
        assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr

    def _start(self, name: str, config: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        storage = self.home / name
        storage.mkdir(exist_ok=True)
        command = [sys.executable, str(HERE / self.script), str(storage), "run", json.dumps(config)]
        temp = self.home / "temp"
        temp.mkdir(exist_ok=True)
        env = {**os.environ, "TMPDIR": str(temp), "PYTHONWARNINGS": "ignore"}
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=env, cwd=storage)


def check_kills(job: Job, *, worker: int, rank: int, driver: int, rounds: list[int], source: int) -> None:
    """A worker is killed after so many rounds, later the driver; ``restore`` continues. Each round was reported once,
    and the final model is that of the undisturbed run. So is that of a new run with ``resume_from_checkpoint``, from
    the checkpoint of the undisturbed one after so many rounds."""
    calm = job.run("calm")
    assert calm["rounds"] == rounds
    resumed = job.run("resumed", source=[str(job.home / "calm" / "run"), source])
    assert resumed["rounds"] == [number for number in rounds if number > source]
    assert resumed["digest"] == calm["digest"]
    job.run_until_killed("struck", strikes={str(rank): worker, "driver": driver})
    found = job.run("struck", restore=True)
    starts = sum(what == "start" for what, _, _, _ in found["notes"])
    assert starts == 6, "two ranks: at first, after the worker was killed, after the driver was"
    print(f"{job.script}: rank {rank} killed: all ranks train again after {recovery_s(found, rank):.2f} s")
    assert found["rounds"] == rounds, found["rounds"]
    assert found["digest"] == calm["digest"]


def check_sizes(job: Job, *, joins: int, lost: int, rounds: list[int] | None = None, **config: Any) -> dict[str, Any]:
    """One worker; after so many rounds a second node joins, later it is lost. Each round was reported once. Without
    ``rounds``, their number depends on when which worker trains."""
    found = job.run("sizes", joins=joins, lost=lost, **config)
    expected = list(range(1, len(found["rounds"]) + 1)) if rounds is None else rounds
    assert found["rounds"] == expected, found["rounds"]
    starts = [rank for what, rank, _, _ in found["notes"] if what == "start"]
    assert sorted(starts) == [0, 0, 0, 1], "one rank at first, two when a node has joined, one when it is lost"
    return found


def numbers(model: str) -> list[float]:
    """The 32 bit numbers of a model that a job printed."""
    return [value for (value,) in struct.iter_unpack("f", bytes.fromhex(model))]


def recovery_s(found: dict[str, Any], rank: int) -> float:
    """From the kill of a worker to the moment when both ranks have entered the train function again."""
    (killed,) = (when for what, _, _, when in found["notes"] if what == f"kill {rank}")
    return sorted(when for what, _, _, when in found["notes"] if what == "start")[3] - killed
