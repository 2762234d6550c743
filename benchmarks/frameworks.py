"""SIGKILL of a worker to the first step that the restarted group completes, with each framework.

Two workers, steps of at least 30 ms, a checkpoint every 20 of them; else as recovery.py. A framework that is not
installed is left out, and so is one that a system cannot run here. ``--frameworks`` measures some of them, beside each
other as always; what the file of ``--json`` has of the others stays in its table. ``--minutes`` limits the time for
all of them together: each then has as many kills as its share allows, one at least. The load is that of the last
minute before each first step; the two workers themselves are part of it.

Horovod is built in an environment of its own (``make horovod``): measure it there, with ``--frameworks horovod``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import Findings, Goal, Options, options, parser, progress, ratio, summary
from peers import NAMES, BenchmarkError, Job, available, work_directory
from recovery import STEP_S, Recovery, kill_once

FRAMEWORKS = {  # what is imported, and its name
    "lightning": "Lightning",
    "transformers": "Transformers",
    "accelerate": "Accelerate",
    "tensorflow": "TensorFlow",
    "jax": "JAX",
    "xgboost": "XGBoost",
    "lightgbm": "LightGBM",
    "sklearn": "scikit-learn",
    "horovod": "Horovod",
}
WITHIN_S = 0.5
ERROR = re.compile(r"\b\w+(?:Error|Exception): [^\"\\\n]{1,200}")
PATIENCE_S = 120.0  # on a quiet machine, several times what a start takes


@dataclass(frozen=True)
class LoadedRecovery(Recovery):
    load: float


def measure(system: str, framework: str, repeats: int, seed: int, work: Path, until: float) -> list[LoadedRecovery]:
    """Until then, on the monotonic clock, another kill may begin."""
    chance = random.Random(seed)
    found: list[LoadedRecovery] = []
    with Job(system, "framework_steps", work, framework=framework, step_s=STEP_S, kills=repeats) as job:
        for number in range(repeats):
            if found and time.monotonic() > until:
                break
            try:
                recovery = kill_once(job, chance, PATIENCE_S)
            except BenchmarkError as error:
                raise BenchmarkError(reason(str(error), job.directory)) from None
            found.append(LoadedRecovery(**vars(recovery), load=os.getloadavg()[0]))
            last, what = found[-1], f"{FRAMEWORKS[framework]} with {NAMES[system]}, kill {number + 1}"
            progress(f"{what}: train function {last.to_train_function:.3f} s, step {last.to_first_step:.3f} s")
    return found


def measure_all(chosen: list[str], options: Options, minutes: float) -> dict[str, Any]:
    """For each framework and system the samples, or why there are none. What one leaves of its share of the time is
    shared by those after it."""
    samples: dict[str, Any] = {}
    end = time.monotonic() + 60 * minutes
    jobs = [(framework, one) for framework in chosen for one in available(options.systems, ("holdfast", "ray"))]
    with work_directory(options.work_dir) as work:
        for number, (framework, system) in enumerate(jobs):
            now = time.monotonic()
            until = now + max(0.0, end - now) / (len(jobs) - number)
            try:
                found = measure(system, framework, options.repeats, options.seed, work, until)
                samples[f"{framework} {system}"] = [vars(one) for one in found]
            except BenchmarkError as error:
                progress(str(error))
                samples[f"{framework} {system}"] = str(error)
    return samples


def reason(error: str, directory: Path) -> str:
    """What went wrong, and the last error that the job's output names, or that a log of Ray Train does: its workers'
    output stays there."""
    logs = sorted(directory.glob("ray/session_2*/logs/train/ray-train-app-*.log"), key=lambda log: log.stat().st_mtime)
    texts = [log.read_text(errors="replace").replace("\\n", "\n") for log in logs]  # of JSON
    named = [found for text in [*texts, error] for found in ERROR.findall(text)]
    return " ".join([error.splitlines()[0].partition(" Its last output")[0], *named[-1:]])


def table(samples: dict[str, Any]) -> Findings:
    times = ["kill to train function", "kill to first step", "against Holdfast"]
    columns = ["framework", "", *times, "steps repeated", "load"]
    findings = Findings("Recovery with each framework: a worker is killed", columns, samples=samples)
    for framework, name in FRAMEWORKS.items():
        ours: float | None = None
        for system in ("holdfast", "ray"):
            found = samples.get(f"{framework} {system}", [])
            if isinstance(found, str):
                findings.notes.append(f"{name} did not run with {NAMES[system]}: `{found}`")
            elif found:
                began, first, again, load = (
                    summary([one[what] for one in found])
                    for what in ("to_train_function", "to_first_step", "steps_again", "load")
                )
                if system == "holdfast":
                    ours = first.median
                    text = f"{name}: the train function again within {WITHIN_S} s"
                    findings.goals.append(Goal(text, began.show("s"), began.median <= WITHIN_S))
                against = ratio(first.median, ours)
                row = [name, NAMES[system], began.show("s"), first.show("s"), against, again.show(), load.show()]
                findings.rows.append(row)
    return findings


def main() -> None:
    arguments = parser((__doc__ or "").splitlines()[0])
    arguments.add_argument("--frameworks", default=",".join(FRAMEWORKS), help="which of them, comma-separated")
    arguments.add_argument("--minutes", type=float, default=11.0, help="for all of them together, about")
    args = arguments.parse_args()
    before = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    chosen = args.frameworks.split(",")
    for framework in [one for one in chosen if importlib.util.find_spec(one) is None]:
        progress(f"{FRAMEWORKS[framework]} is not installed here and is left out")
        chosen.remove(framework)
    findings = table(before.get("samples", {}) | measure_all(chosen, options(args), args.minutes))
    print(findings.text())
    if args.json:
        args.json.write_text(json.dumps(before | findings.as_json(), indent=1) + "\n")
    sys.exit(0 if all(goal.met for goal in findings.goals) else 1)


if __name__ == "__main__":
    main()
