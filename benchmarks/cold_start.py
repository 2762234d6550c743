"""`python script.py` to the first line of the train function on both workers, beside `python -c "import torch"`.

The systems take turns, so that a slow spell of the machine meets all of them. A first round warms the page cache and is
not counted.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from measure import Findings, Goal, Options, Summary, main, progress, ratio, summary
from peers import NAMES, Job, available, work_directory

IMPORT = "import torch"


def import_torch() -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", IMPORT], check=True, timeout=120)
    return time.monotonic() - began


def start(system: str, work: Path) -> float:
    with Job(system, "first_line", work) as job:
        files = [job.log / "0", job.log / "1"]
        job.wait_for(lambda: all(path.exists() for path in files), "its train functions began", 180)
        entered = max(float(path.read_text()) for path in files)
        job.wait(120)
        return entered - job.started


def goals(times: dict[str, Summary]) -> list[Goal]:
    if "holdfast" not in times:
        return []
    limit = 1.3 * times[IMPORT].median + 0.5
    ours = times["holdfast"]
    return [
        Goal(f"at most 1.3 times the import of torch plus 0.5 s ({limit:.2f} s)", ours.show("s"), ours.median <= limit)
    ]


def run(options: Options) -> Findings:
    systems = available(options.systems)
    samples: dict[str, list[float]] = {name: [] for name in [IMPORT, *systems]}
    with work_directory(options.work_dir) as work:
        for turn in range(options.repeats + 1):
            round_times = {IMPORT: import_torch(), **{system: start(system, work) for system in systems}}
            progress(f"turn {turn}: " + ", ".join(f"{name} {took:.2f} s" for name, took in round_times.items()))
            if turn > 0:
                for name, took in round_times.items():
                    samples[name].append(took)
    times = {name: summary(values) for name, values in samples.items()}
    findings = Findings("Cold start: script to train function", ["", "time", "against Holdfast"])
    ours = times["holdfast"].median if "holdfast" in times else None
    for name, time_s in times.items():
        findings.rows.append([NAMES.get(name, f'`python -c "{name}"`'), time_s.show("s"), ratio(time_s.median, ours)])
    findings.goals = goals(times)
    findings.samples = dict(samples)
    return findings


if __name__ == "__main__":
    main(__doc__, run)
