"""``interrupted_start.py KIND STORAGE``: calls ``fit()`` many times, each time with a real SIGINT at another line of
its start, and fails if any of them leaves a thread, a process, a descriptor or a temporary file."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from types import FrameType
from typing import Any

from holdfast import train, tune

POINTS = 40
PATIENCE_S = 120.0
TICKS = 3000
# The function that ends the start
STARTED = {"training": "_start_attempt", "tuning": "_advance", "in_process": "perform"}


def train_fn(config: dict[str, Any]) -> None:
    train.report({"started": True})
    for _ in range(config["ticks"]):
        time.sleep(0.01)


def fit(kind: str, name: str, storage: str, ticks: int) -> None:
    run = train.RunConfig(name=name, storage_path=storage, verbose=0)
    if kind == "tuning":
        tune.Tuner(train_fn, param_space={"ticks": ticks}, run_config=run).fit()
        return
    workers = train.ScalingConfig(num_workers=0 if kind == "in_process" else 2)
    train.DataParallelTrainer(
        train_fn, train_loop_config={"ticks": ticks}, scaling_config=workers, run_config=run
    ).fit()


class Tracer:
    """Counts the lines of the main thread, each the first time that it is reached, and interrupts at one of them."""

    def __init__(self, interrupt_at: int, ends_at: str) -> None:
        self.lines = 0
        self.where = ""
        self._at, self._ends_at = interrupt_at, ends_at
        self._seen: set[tuple[str, int]] = set()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> Tracer | None:
        place = frame.f_code.co_filename, frame.f_lineno
        if frame.f_code.co_name == self._ends_at:
            sys.settrace(None)  # the start is over
        if event == "line" and place not in self._seen:
            self._seen.add(place)
            self.lines += 1
            if self.lines == self._at:
                self.where = f"{place[0]}:{place[1]}"
                signal.raise_signal(signal.SIGINT)
        return self


def left_behind(threads: set[threading.Thread], files: int) -> list[str]:
    """Since then. There were no processes before."""
    found = [thread.name for thread in threading.enumerate() if thread not in threads]
    with open(f"/proc/self/task/{threading.main_thread().native_id}/children") as children:
        found += [f"process {pid}" for pid in children.read().split()]
    found += os.listdir(tempfile.gettempdir())
    descriptors = len(os.listdir("/proc/self/fd")) - files
    return [*found, *([f"{descriptors} descriptors"] if descriptors > 0 else [])]


def interrupted(kind: str, storage: str, line: int, ends_at: str) -> str:
    """What is wrong after an interrupt at that line."""
    threads, files = set(threading.enumerate()), len(os.listdir("/proc/self/fd"))
    tracer, ending = Tracer(line, ends_at), "it returned"
    sys.settrace(tracer)
    try:
        fit(kind, f"run-{line}", storage, TICKS if line else 0)
    except KeyboardInterrupt:
        ending = ""
    finally:
        sys.settrace(None)
    deadline = time.monotonic() + PATIENCE_S
    while (left := left_behind(threads, files)) and time.monotonic() < deadline:
        time.sleep(0.01)
    if not line:
        return str(tracer.lines)
    return f"{tracer.where}: {ending} {left}" if left or ending else ""


def main(kind: str, storage: str) -> int:
    ends_at = STARTED[kind]
    fit(kind, "first", storage, 0)  # imports all that is imported late
    lines = int(interrupted(kind, storage, 0, ends_at))
    points = sorted({1 + lines * point // POINTS for point in range(POINTS)})
    wrong = [said for said in (interrupted(kind, storage, point, ends_at) for point in points) if said]
    print("\n".join(wrong) if wrong else f"nothing was left after {len(points)} interrupts in {lines} lines")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
