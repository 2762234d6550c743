"""SIGKILL of a DDP rank to the next step of all ranks, steps that are done again, and the cost of a step without one.

Two workers, steps of 30 ms. Holdfast with a recoverable step and a standby worker, also with steps of 5 ms, because the
time to the next step has that step in it; without the standby, and with restarts; torchft as it is and with a heartbeat
time-out of 0.3 s; and Ray Train. A rank chosen by chance is killed at a random moment, not before the run has trained
for 15 s, or about 2 s after the first step, each time in a run of its own. With a recoverable step there are six times
as many kills, for the slowest of them.
"""

from __future__ import annotations

import importlib.util
import math
import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from measure import Findings, Goal, Options, Summary, main, progress, ratio, summary
from peers import NAMES, Job, available, work_directory
from recovery import CHECKPOINT_EVERY, STEP_S, WARM_S, attempts, newest

WARM_STEPS = 60


@dataclass(frozen=True)
class Case:
    name: str
    system: str  # that starts the job
    job: str
    config: dict[str, object]
    times: int = 1  # kills for each repeat
    is_early: bool = False  # a run of its own for each kill, about 2 s after its first step


@dataclass(frozen=True)
class LiveRecovery:
    to_next_step: float  # of all ranks
    steps_again: int


def _ms(step_s: float) -> str:
    return f"steps of {step_s * 1000:.0f} ms"


EVEN_STEPS = {"step_s": STEP_S, "checkpoint_every": CHECKPOINT_EVERY}
TORCHFT = {"join_timeout_ms": 60000, "heartbeat_timeout_ms": 5000}  # its defaults
SHORT_S = 0.005
SHORT = {"standby_workers": 1, "step_s": SHORT_S, "checkpoint_every": round(CHECKPOINT_EVERY * STEP_S / SHORT_S)}
CASES = (
    Case(f"Holdfast, standby worker, {_ms(STEP_S)}", "holdfast", "live_steps", {"standby_workers": 1}, times=6),
    Case(f"Holdfast, standby worker, {_ms(SHORT_S)}", "holdfast", "live_steps", SHORT, times=6),
    Case("Holdfast, recoverable step", "holdfast", "live_steps", {}, times=6),
    Case("Holdfast, recoverable step, first seconds", "holdfast", "live_steps", {}, is_early=True),
    Case("Holdfast, restart", "holdfast", "steps", {}),
    Case("torchft", "holdfast", "torchft_steps", TORCHFT),
    Case("torchft, tuned", "holdfast", "torchft_steps", {"join_timeout_ms": 100, "heartbeat_timeout_ms": 300}),
    Case("Ray Train", "ray", "steps", {}),
)


_GOALS = {
    case.name: limits
    for case, limits in zip(CASES, [(0.06, 0.15), (0.06, 0.15), (0.15, math.inf), (0.15, math.inf)], strict=False)
}


def cases(options: Options) -> list[Case]:
    systems = available(options.systems)
    has_torchft = importlib.util.find_spec("torchft") is not None
    if not has_torchft:
        progress("torchft is not installed here and is left out")
    return [case for case in CASES if case.system in systems and (has_torchft or case.job != "torchft_steps")]


def kill_once(job: Job, chance: random.Random, warm_s: float = WARM_S) -> LiveRecovery:
    def warm() -> bool:
        first = [attempt.steps[0][0] for attempt in attempts(job.log) if attempt.steps]
        ranks = newest(job.log).values()
        settled = bool(first) and time.monotonic() > min(first) + warm_s
        return settled and len(ranks) == 2 and all(len(attempt.steps) >= WARM_STEPS for attempt in ranks)

    job.wait_for(warm, "it had trained for a while", 180)
    time.sleep(chance.uniform(0.0, 1.0))
    victim = newest(job.log)[chance.randrange(2)]
    killed = time.monotonic()
    os.kill(victim.pid, signal.SIGKILL)

    def first_again() -> int | None:
        """The first step of the victim's successor."""
        late = [a.steps[0][1] for a in attempts(job.log) if a.rank == victim.rank and a.entered > killed and a.steps]
        return late[0] if late else None

    def times(step: int) -> dict[int, float]:
        late = [(a.rank, at) for a in attempts(job.log) for at, number in a.steps if at > killed and number >= step]
        return dict(sorted(late, key=lambda one: one[1], reverse=True))  # the earliest of each rank

    job.wait_for(lambda: (step := first_again()) is not None and len(times(step)) == 2, "its next step", 180)
    step = first_again()
    assert step is not None
    others = [a for a in attempts(job.log) if a.rank != victim.rank]
    done = max(number for a in others for at, number in a.steps if at <= killed)
    return LiveRecovery(max(times(step).values()) - killed, max(0, done - step + 1))


def measure(case: Case, repeats: int, seed: int, work: Path) -> tuple[list[LiveRecovery], float]:
    """Recoveries, and how long a step took before the first kill, but for the sleep: of the rank that came last to the
    collective, which waited for nobody."""
    chance, found, took = random.Random(seed), [], 0.0
    if case.is_early:
        for number in range(repeats):
            with Job(case.system, case.job, work, **EVEN_STEPS) as job:
                found.append(kill_once(job, chance, 0.0))
            progress(f"{case.name}, run {number + 1}: next step after {found[-1].to_next_step:.3f} s")
        return found, took
    with Job(case.system, case.job, work, **{**EVEN_STEPS, **case.config}) as job:
        for number in range(repeats):
            found.append(kill_once(job, chance))
            if number == 0:
                one, other = (attempt.busy for attempt in attempts(job.log)[:2])
                steps = sorted(one.keys() & other.keys())
                took = summary([min(one[step], other[step]) for step in steps[len(steps) // 2 :]]).median
            progress(f"{case.name}, kill {number + 1}: next step after {found[-1].to_next_step:.3f} s")
    return found, took


def _slowest(times: Summary) -> float:
    """The 99th of a hundred; of fewer, the last."""
    return sorted(times.values)[math.ceil(0.99 * len(times.values)) - 1]


def _judged(name: str, times: Summary, limits: tuple[float, float]) -> list[Goal]:
    p50, p99 = limits
    goals = [Goal(f"{name}: p50 at most {p50} s", times.show("s"), times.median <= p50)]
    if not math.isinf(p99):
        goals.append(Goal(f"{name}: p99 at most {p99} s", f"{_slowest(times):.3f} s", _slowest(times) <= p99))
    return goals


def run(options: Options) -> Findings:
    columns = [
        "",
        "kill to the next step of all ranks",
        "p99",
        "against Holdfast",
        "steps repeated",
        "a step without its sleep",
    ]
    findings = Findings("Live recovery: a DDP rank is killed", columns)
    times: dict[str, Summary] = {}
    with work_directory(options.work_dir) as work:
        for case in cases(options):
            found, took = measure(case, options.repeats * case.times, options.seed, work)
            times[case.name] = summary([one.to_next_step for one in found])
            again = summary([one.steps_again for one in found])
            ours = times[CASES[0].name].median if CASES[0].name in times else None
            against = ratio(times[case.name].median, ours)
            p99 = f"{_slowest(times[case.name]):.3f} s"
            row = [
                case.name,
                times[case.name].show("s"),
                p99,
                against,
                again.show(),
                f"{took * 1000:.2f} ms" if took else "",
            ]
            findings.rows.append(row)
            findings.samples[case.name] = {"recoveries": [vars(one) for one in found], "step_s": took}
    findings.goals = [
        goal for case, limits in _GOALS.items() if case in times for goal in _judged(case, times[case], limits)
    ]
    findings.notes = [
        f"A step takes {STEP_S * 1000:.0f} ms where nothing else is said, most of it a sleep, and the time to the next "
        "step includes it. "
        "The last column is the rest of a step, without a fault: plain DDP is the row with the restart. "
        f"A checkpoint every {CHECKPOINT_EVERY * STEP_S:g} s, none with torchft. {NAMES['ray']} restarts all ranks."
    ]
    return findings


if __name__ == "__main__":
    main(__doc__, run)
