"""SIGKILL of a worker to the first step that the restarted group completes, with each framework.

Two workers, steps of at least 30 ms, a checkpoint every 20 of them; else as recovery.py. A framework that is not
installed is left out, and so is one that a system cannot run here.
"""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

from measure import Findings, Goal, Options, Summary, main, progress, ratio, summary
from peers import NAMES, BenchmarkError, Job, available, work_directory
from recovery import STEP_S, Recovery, kill_once

FRAMEWORKS = {  # what is imported, and its name
    "lightning": "Lightning",
    "transformers": "Transformers",
    "tensorflow": "TensorFlow",
    "jax": "JAX",
    "xgboost": "XGBoost",
    "lightgbm": "LightGBM",
}
WITHIN_S = 0.5


def measure(system: str, framework: str, repeats: int, seed: int, work: Path) -> list[Recovery]:
    chance = random.Random(seed)
    found = []
    with Job(system, "framework_steps", work, framework=framework, step_s=STEP_S, kills=repeats) as job:
        for number in range(repeats):
            found.append(kill_once(job, chance))
            last, what = found[-1], f"{FRAMEWORKS[framework]} with {NAMES[system]}, kill {number + 1}"
            progress(f"{what}: train function {last.to_train_function:.3f} s, step {last.to_first_step:.3f} s")
    return found


def run(options: Options) -> Findings:
    columns = ["framework", "", "kill to train function", "kill to first step", "against Holdfast", "steps done again"]
    findings = Findings("Recovery with each framework: a worker is killed", columns)
    entered: dict[str, Summary] = {}
    with work_directory(options.work_dir) as work:
        for framework, name in FRAMEWORKS.items():
            if importlib.util.find_spec(framework) is None:
                progress(f"{name} is not installed here and is left out")
                continue
            ours: float | None = None
            for system in available(options.systems, ("holdfast", "ray")):
                try:
                    found = measure(system, framework, options.repeats, options.seed, work)
                except BenchmarkError as error:
                    progress(str(error))
                    findings.notes.append(f"{name} did not run with {NAMES[system]}: see the output of the benchmark.")
                    continue
                began = summary([one.to_train_function for one in found])
                first = summary([one.to_first_step for one in found])
                again = summary([one.steps_again for one in found])
                if system == "holdfast":
                    ours, entered[name] = first.median, began
                row = [name, NAMES[system], began.show("s"), first.show("s"), ratio(first.median, ours), again.show()]
                findings.rows.append(row)
                findings.samples[f"{framework} {system}"] = [vars(one) for one in found]
    findings.goals = [
        Goal(f"{name}: the train function again within {WITHIN_S} s", took.show("s"), took.median <= WITHIN_S)
        for name, took in entered.items()
    ]
    return findings


if __name__ == "__main__":
    main(__doc__, run)
