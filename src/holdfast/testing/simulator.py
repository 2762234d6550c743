"""Drives the real kernel of driver/ through seeded fault schedules and checks the invariants after every step.

``python -m holdfast.testing.simulator --seeds 20000`` plays 20,000 seeds. It prints a seed that breaks an invariant,
and ``--seed K --trace`` plays that seed again, exactly.
"""

from __future__ import annotations

import argparse
import gc
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from random import Random
from typing import IO

import msgspec
from msgspec import Struct

from .clock import Clock
from .fates import Violation
from .schedule import KINDS, OCCASIONS, Faults, Schedule, draw
from .simulated_runtime import REVIVED_AFTER_S, DriverKilled, SimulatedRuntime

MOST_TURNS = 20_000
CHUNK = 250
LAST_LINES = 60
_TELL_EVERY_S = 60.0


class Broken(Struct, frozen=True):
    """A schedule that broke an invariant."""

    seed: int
    invariant: str
    what: str


class Tally(Struct):
    """The result of a number of schedules."""

    schedules: int = 0
    steps: int = 0
    faults: dict[str, int] = {}
    outcomes: dict[str, int] = {}
    broken: list[Broken] = []

    def add(self, other: Tally) -> None:
        self.schedules += other.schedules
        self.steps += other.steps
        for counts, more in ((self.faults, other.faults), (self.outcomes, other.outcomes)):
            for kind, count in more.items():
                counts[kind] = counts.get(kind, 0) + count
        self.broken = [*self.broken, *other.broken]


def simulate(seed: int, trace: list[str] | None = None) -> Tally:
    """Play one schedule to its end. Raises Violation. The same seed always gives the same run."""
    rng = Random(seed)
    return play(draw(rng), rng, trace)


def play(
    schedule: Schedule,
    rng: Random,
    trace: list[str] | None = None,
    strikes: Mapping[int, Sequence[tuple[str, int]]] | None = None,
) -> Tally:
    """``strikes``: what to kill at which turn: ("driver", 0), or an argument of ``Workers.strike``."""
    clock, faults = Clock(), Faults(schedule.faults)
    driver = SimulatedRuntime(clock, rng, faults, schedule)
    driver.trace = trace
    if trace is not None:
        trace.append(f"{schedule}")
    revivals = schedule.revivals
    clock.after(0.0, driver.start)
    for turn in range(MOST_TURNS):
        try:
            for kind, which in strikes.get(turn, ()) if strikes else ():
                driver.die_of("driver killed") if kind == "driver" else driver.workers.strike(kind, which)
            more = clock.run_next()
        except DriverKilled:
            driver.die()
            clock.after(REVIVED_AFTER_S, driver.start)
            continue
        if driver.ended is not None and not more:
            if revivals == 0:
                return Tally(1, driver.steps, dict(faults.happened), {driver.ended.value: 1})
            revivals -= 1
            clock.after(REVIVED_AFTER_S, driver.start)
        elif not more:
            raise Violation("9 the run ends", f"nothing is left to happen in phase {driver.state.phase.value}")
    raise Violation("9 the run ends", f"it still runs after {MOST_TURNS} turns")


def simulate_range(start: int, count: int, where: Callable[[Schedule], bool] | None = None) -> Tally:
    """Play the schedules of consecutive seeds, or only the requested ones. Stops at the first that breaks an
    invariant."""
    total = Tally()
    for seed in range(start, start + count):
        if where is not None and not where(draw(Random(seed))):
            continue
        try:
            total.add(simulate(seed))
        except Violation as violation:
            total.broken = [Broken(seed, violation.invariant, violation.what)]
            break
    return total


def simulate_many(
    start: int,
    count: int | None,
    seconds: float | None = None,
    processes: int | None = None,
    tell: Callable[[Tally], None] = lambda _total: None,
) -> Tally:
    """Play schedules in several processes until there are enough, the time is up, or one breaks an invariant. ``tell``
    gets the progress."""
    deadline = None if seconds is None else time.monotonic() + seconds
    total, chunks = Tally(), _chunks(start, count)
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for _ in range(processes or os.cpu_count() or 1):
            worker = stack.enter_context(_worker())
            if _give(worker, next(chunks, None)):
                selector.register(_out_of(worker), selectors.EVENT_READ, worker)
        while selector.get_map():
            for key, _ in selector.select():
                total.add(msgspec.json.decode(key.fileobj.readline(), type=Tally))  # type: ignore[union-attr]
                tell(total)
                over = total.broken or (deadline is not None and time.monotonic() >= deadline)
                if not _give(key.data, None if over else next(chunks, None)):
                    selector.unregister(key.fileobj)
    return total


def _worker() -> subprocess.Popen[bytes]:
    """A process that plays the schedules that it reads. It is not of multiprocessing, which would leave its resource
    tracker behind."""
    command = [sys.executable, "-m", "holdfast.testing.simulator", "--worker"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _give(worker: subprocess.Popen[bytes], chunk: tuple[int, int] | None) -> bool:
    """Give the worker its next work. If there is none, the worker exits."""
    assert worker.stdin is not None
    if chunk is None:
        worker.stdin.close()
        return False
    worker.stdin.write(msgspec.json.encode(chunk) + b"\n")
    worker.stdin.flush()
    return True


def _out_of(worker: subprocess.Popen[bytes]) -> IO[bytes]:
    assert worker.stdout is not None
    return worker.stdout


def _work() -> None:
    gc.freeze()
    gc.set_threshold(100_000)  # few objects of a schedule form cycles, and all are garbage when the next one begins
    for line in sys.stdin.buffer:
        answer = msgspec.json.encode(simulate_range(*msgspec.json.decode(line, type=tuple[int, int])))
        sys.stdout.buffer.write(answer + b"\n")
        sys.stdout.buffer.flush()


def _chunks(start: int, count: int | None) -> Iterator[tuple[int, int]]:
    first, left = start, count
    while left is None or left > 0:
        size = CHUNK if left is None else min(CHUNK, left)
        yield first, size
        first, left = first + size, None if left is None else left - size


def explain(seed: int, lines: int | None = LAST_LINES) -> str:
    """Play the schedule again and print the last lines of what happened."""
    trace: list[str] = []
    try:
        simulate(seed, trace)
        verdict = "every invariant holds"
    except Violation as violation:
        verdict = f"BROKEN {violation}"
    told = trace if lines is None else trace[-lines:]
    return "\n".join([*told, f"seed {seed}: {verdict}"])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m holdfast.testing.simulator", description=__doc__)
    parser.add_argument("--seeds", type=int, help="how many schedules (20000, or as many as --seconds allows)")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, help="stop after this time")
    parser.add_argument("--seed", type=int, help="play this one alone")
    parser.add_argument("--trace", action="store_true", help="with --seed: print every step")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        _work()
        return 0
    if options.seed is not None:
        told = explain(options.seed, None if options.trace else LAST_LINES)
        print(told)
        return 1 if "BROKEN" in told.splitlines()[-1] else 0
    count = options.seeds if options.seeds is not None or options.seconds is not None else 20_000
    began = time.monotonic()
    total = simulate_many(options.start, count, options.seconds, tell=_Progress(count).show)
    print(_summary(total, time.monotonic() - began))
    for broken in total.broken:
        print(f"\nseed {broken.seed} BROKE {broken.invariant}\n{broken.what}\n\n{explain(broken.seed)}")
        print(f"\npython -m holdfast.testing.simulator --seed {broken.seed} --trace")
    return 1 if total.broken else 0


class _Progress:
    """Prints a line per minute, for simulations that take an hour."""

    def __init__(self, count: int | None) -> None:
        self._of = "" if count is None else f" of {count:,}"
        self._began = self._told = time.monotonic()

    def show(self, total: Tally) -> None:
        now = time.monotonic()
        if now - self._told >= _TELL_EVERY_S:
            self._told = now
            rate = total.schedules / (now - self._began)
            print(f"{total.schedules:,}{self._of} schedules, {rate:.0f}/s", file=sys.stderr, flush=True)


def _summary(total: Tally, seconds: float) -> str:
    rate = total.schedules / seconds if seconds > 0 else 0.0
    cores = os.cpu_count() or 1
    lines = [
        f"{total.schedules} schedules, {total.steps} steps, {seconds:.1f} s: {rate:.0f} schedules/s on {cores} cores"
    ]
    lines += [f"  {kind:<48}{total.faults.get(kind, 0):>9}" for kind in (*KINDS, *OCCASIONS)]
    lines.append("ended: " + ", ".join(f"{n} {outcome}" for outcome, n in sorted(total.outcomes.items())))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
