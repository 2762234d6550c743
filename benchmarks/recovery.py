"""SIGKILL of a worker to the first step that the restarted group completes, and the steps that are done again.

Two DDP workers, steps of 30 ms, a checkpoint every 20. One run for each system; a worker chosen by chance is killed at
a random moment, as often as there are repeats: not before the run has trained for 15 s, nor before the group has done
60 steps since it last started.
"""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from measure import Findings, Goal, Options, Summary, main, progress, ratio, summary
from peers import NAMES, Job, available, work_directory

STEP_S, CHECKPOINT_EVERY = 0.03, 20
WARM_STEPS, WARM_S = 60, 15.0


@dataclass(frozen=True)
class Attempt:
    """One call of the train function on one rank."""

    rank: int
    entered: float
    pid: int
    steps: list[tuple[float, int]]
    busy: dict[int, float]  # by step, the seconds that it took but for the sleep


@dataclass(frozen=True)
class Recovery:
    to_train_function: float
    to_first_step: float
    steps_again: int


def attempts(log: Path) -> list[Attempt]:
    """All calls so far, oldest first."""
    found = []
    for path in log.iterdir():
        rank, entered, pid = path.name.split("-")
        lines = path.read_text().split("\n")[:-1]  # a line without its end is still being written
        fields = [line.split() for line in lines]
        steps = [(float(at), int(step)) for at, step, *_ in fields]
        busy = {int(step): float(took[0]) for _, step, *took in fields if took}
        found.append(Attempt(int(rank), int(entered) / 1e9, int(pid), steps, busy))
    return sorted(found, key=lambda attempt: attempt.entered)


def newest(log: Path) -> dict[int, Attempt]:
    return {attempt.rank: attempt for attempt in attempts(log)}


def kill_once(job: Job, chance: random.Random, patience_s: float = 180.0) -> Recovery:
    def warm() -> bool:
        first = [attempt.steps[0][0] for attempt in attempts(job.log) if attempt.steps]
        ranks = newest(job.log).values()
        settled = bool(first) and time.monotonic() > min(first) + WARM_S
        return settled and len(ranks) == 2 and all(len(attempt.steps) >= WARM_STEPS for attempt in ranks)

    job.wait_for(warm, "it had trained for a while", patience_s)
    time.sleep(chance.uniform(0.0, 1.0))
    victim = newest(job.log)[chance.randrange(2)]
    killed = time.monotonic()
    os.kill(victim.pid, signal.SIGKILL)

    def restarted() -> dict[int, Attempt]:
        late = [attempt for attempt in attempts(job.log) if attempt.entered > killed and attempt.steps]
        return {attempt.rank: attempt for attempt in reversed(late)}

    job.wait_for(lambda: len(restarted()) == 2, "its first step after a kill", patience_s)
    after = restarted().values()
    last_before = max(
        attempt.steps[-1][1] for attempt in attempts(job.log) if attempt.entered < killed and attempt.steps
    )
    return Recovery(
        to_train_function=max(attempt.entered for attempt in after) - killed,
        to_first_step=max(attempt.steps[0][0] for attempt in after) - killed,
        steps_again=last_before - min(attempt.steps[0][1] for attempt in after) + 1,
    )


def measure(system: str, repeats: int, seed: int, work: Path) -> list[Recovery]:
    chance = random.Random(seed)
    found = []
    with Job(system, "steps", work, step_s=STEP_S, checkpoint_every=CHECKPOINT_EVERY) as job:
        for number in range(repeats):
            found.append(kill_once(job, chance))
            progress(f"{NAMES[system]}, kill {number + 1}: first step after {found[-1].to_first_step:.3f} s")
    return found


def goals(first_step: dict[str, Summary]) -> list[Goal]:
    ours = first_step.get("holdfast")
    if ours is None:
        return []
    found = [Goal("first step within 0.2 s of the kill", ours.show("s"), ours.median <= 0.2)]
    for system, factor in (("ray", 20), ("torchrun", 5)):
        if system in first_step:
            times = first_step[system].median / ours.median
            found.append(Goal(f"at least {factor} times faster than {NAMES[system]}", f"{times:.1f}", times >= factor))
    return found


def run(options: Options) -> Findings:
    columns = ["", "kill to train function", "kill to first step", "against Holdfast", "steps repeated"]
    findings = Findings("Recovery: a worker is killed", columns)
    first_step: dict[str, Summary] = {}
    with work_directory(options.work_dir) as work:
        for system in available(options.systems):
            found = measure(system, options.repeats, options.seed, work)
            entered = summary([one.to_train_function for one in found])
            first_step[system] = summary([one.to_first_step for one in found])
            again = summary([one.steps_again for one in found])
            ours = first_step["holdfast"].median if "holdfast" in first_step else None
            against = ratio(first_step[system].median, ours)
            row = [NAMES[system], entered.show("s"), first_step[system].show("s"), against, again.show()]
            findings.rows.append(row)
            findings.samples[system] = [vars(one) for one in found]
    findings.goals = goals(first_step)
    findings.notes = [f"A step takes {STEP_S * 1000:.0f} ms; a checkpoint is made every {CHECKPOINT_EVERY} steps."]
    return findings


if __name__ == "__main__":
    main(__doc__, run)
