"""Tuning beside Ray Tune and Optuna: trivial trials, results of one trial, restoring finished trials, and very many.

Each figure is of a process of its own, one after the other. A trial of Holdfast and of Ray Tune is a process; one of
Optuna is a call in the script's own process with every trial written to its storage, so its rate is shown and not
compared. Ray's start is left out of its figures. The 100,000 trials are real ones of the experiment's machine,
journal and loop, without processes below. ``tuning.py restore many`` measures just these; without a name, all.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from measure import Findings, Goal, Options, main, progress, ratio, summary
from peers import available, work_directory

JOBS = Path(__file__).parent / "tuning_jobs"
SIZES = {
    "trials": {"holdfast": 200, "ray": 16},
    "results": {"holdfast": 10_000, "ray": 300},
    "restore": {"holdfast": 1000, "ray": 1000},
}
MANY, MANY_PROCESSES = 100_000, 3000
COMPARED = (  # what, how it is called, and how many times as fast as Ray Tune it is to be
    ("trials", "trivial trials, a process each", 20.0),
    ("results-fifo", "results of one trial", 20.0),
    ("results-asha", "results of one trial, under ASHA", 20.0),
    ("results-stop", "results of one trial, each decided on before it continues", 0.0),
    ("restore", "restore of 1,000 finished trials", 10.0),
)
SUBJECTS = [*(what for what, _, _ in COMPARED), "many"]
LIMIT_S = 1500.0


def measure(what: str, system: str, work: Path, *args: object) -> dict[str, float]:
    command = [sys.executable, JOBS / f"{system}_{what}.py", work, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{what} of {system} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    progress(f"{what}, {system}: {found}")
    return found


def run(options: Options, only: Sequence[str] = SUBJECTS) -> Findings:
    columns = ["", "Holdfast", "Ray Tune", "Optuna", "Holdfast against Ray Tune"]
    findings = Findings("Tuning", columns)
    systems = available(options.systems, ("holdfast", "ray"))
    with work_directory(options.work_dir) as work:
        for what, title, goal in COMPARED:
            if what in only:
                compare(findings, work, options, systems, what, title, goal)
        if "many" in only:
            many(findings, work)
    return findings


def compare(
    findings: Findings, work: Path, options: Options, systems: Sequence[str], what: str, title: str, goal: float
) -> None:
    job, _, kind = what.partition("-")
    samples: dict[str, list[float]] = {}
    for system in systems:
        for number in range(options.repeats if system == "holdfast" else 1):
            place = work / f"{what}-{system}-{number}"
            place.mkdir()
            samples.setdefault(system, []).append(measure(job, system, place, SIZES[job][system], kind)["value"])
    findings.samples[title] = samples
    unit = "s" if job == "restore" else "a second"
    shown = {system: summary(values).show(unit) for system, values in samples.items()}
    optuna = measure_optuna(work, findings) if job == "trials" and len(systems) > 1 else ""
    times = ""
    if len(samples) == 2:
        ours, theirs = (summary(samples[system]).median for system in ("holdfast", "ray"))
        faster = theirs / ours if job == "restore" else ours / theirs
        times = ratio(faster, 1.0)
        if goal:
            text = f"{title}: at least {goal:.0f} times as fast as Ray Tune"
            findings.goals.append(Goal(text, times, faster >= goal))
    findings.rows.append([title, shown.get("holdfast", ""), shown.get("ray", ""), optuna, times])


def measure_optuna(work: Path, findings: Findings) -> str:
    rates = {kind: measure("trials", "optuna", work, kind)["value"] for kind in ("journal", "sqlite")}
    findings.samples["optuna"] = rates
    return ", ".join(f"{kind}: {rate:.0f} a second" for kind, rate in rates.items())


def many(findings: Findings, work: Path) -> None:
    for job, count, title in (("many", MANY, "without processes"), ("processes", MANY_PROCESSES, "a process each")):
        title = f"{count:,} trials, {title}"
        place = work / job
        place.mkdir()
        found = findings.samples[title] = measure(job, "holdfast", place, count)
        text = f"{found['rate']:,.0f} a second, {found['bytes_each']:,.0f} bytes of memory for each that has ended"
        findings.rows.append([title, text, "", "", ""])
        steady = found["last_rate"] / found["first_rate"]
        findings.goals += [
            Goal(f"{title}: under 2 KB for a finished one", f"{found['bytes_each']:.0f}", found["bytes_each"] < 2048),
            Goal(f"{title}: the last tenth at 0.8 or more of the rate of the first", f"{steady:.2f}", steady >= 0.8),
        ]


if __name__ == "__main__":
    only = [argument for argument in sys.argv[1:] if argument in SUBJECTS] or SUBJECTS
    sys.argv = [argument for argument in sys.argv if argument not in SUBJECTS]
    main(__doc__, partial(run, only=only))
