"""Runs the script in a separate process, as ``python script.py args`` does, with a time limit, and leaves nothing
behind.

A process of a run is recognized by its environment, which names the stage.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from holdfast.drill.own_cluster import OwnCluster
from holdfast.drill.process_start import signals_held, start
from holdfast.drill.stage import SETTING, Stage, marked

_ENDED_WITHIN_S = 15.0  # processes that the script leaves behind exit within this time, or are killed
_LOOK_EVERY_S = 0.05
_FAILURES_IN_A_ROW = 3


@dataclass(frozen=True)
class Take:
    """How often the script was run until it ended well, and how it ended."""

    code: int | None  # exit code of the last time; None: it was killed because it took too long
    times: int
    seconds: float
    left: int = 0  # processes that had to be ended

    @property
    def is_good(self) -> bool:
        return self.code == 0


def perform(stage: Stage, script: str, args: Sequence[str], limit_s: float, cluster: OwnCluster) -> Take:
    """Run the script, and again while a fault ended it, as a job queue would."""
    began = time.monotonic()
    times, left, code = 0, 0, None
    while times < _FAILURES_IN_A_ROW:
        times += 1
        try:
            code = _run(stage, script, args, limit_s - (time.monotonic() - began), cluster)
        finally:
            left += clear(stage)
        left += cluster.clear()
        if code in (0, None) or not stage.is_struck:
            break
        _let_it_pass(stage)
    stage.remove_memory_group()
    return Take(code, times, time.monotonic() - began, left)


def _let_it_pass(stage: Stage) -> None:
    """A job queue would not submit the job again while the disk is full."""
    fault, struck = stage.fault, stage.struck()
    if fault is not None and struck is not None and fault.kind.where in ("disk", "storage"):
        time.sleep(min(60.0, max(0.0, struck["time"] + fault.seconds - time.time())))


def _run(stage: Stage, script: str, args: Sequence[str], limit_s: float, cluster: OwnCluster) -> int | None:
    env = {
        **os.environ,
        SETTING: stage.setting,
        "HOLDFAST_DISPLAY": "plain",
        "TMPDIR": str(stage.temporary_dir),
        "PYTHONUNBUFFERED": "1",
        **_for_fault(stage),
    }
    with signals_held() as mask:
        with open(stage.output_file, "ab") as output:
            process = start([sys.executable, script, *args], env, output, mask)
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            return _wait(process, max(0.1, limit_s), partial(cluster.attend, stage))
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen[bytes], limit_s: float, attend: Callable[[], None]) -> int | None:
    """Its exit code; None if it takes too long. Meanwhile its requests are served."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        attend()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_LOOK_EVERY_S)
    return None


def _for_fault(stage: Stage) -> dict[str, str]:
    """A node that is cut off is given up soon, unless the user says when."""
    if stage.fault is not None and stage.fault.name == "partition" and "HOLDFAST_NODE_TIMEOUT_S" not in os.environ:
        return {"HOLDFAST_NODE_TIMEOUT_S": "3"}
    return {}


def clear(stage: Stage) -> int:
    """Wait for the end of all processes of the run. Returns how many of them had to be killed."""
    deadline = time.monotonic() + _ENDED_WITHIN_S
    while processes(stage) and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY_S)
    left = processes(stage)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while processes(stage) and time.monotonic() < deadline + _ENDED_WITHIN_S:
        time.sleep(_LOOK_EVERY_S)
    return len(left)


def processes(stage: Stage) -> list[int]:
    """The living processes on this machine that the script has started itself."""
    return marked(SETTING, stage.setting)
