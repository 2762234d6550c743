"""report() without a checkpoint: how many a second each of two workers makes, one after the other.

Rounds of reports in one run for each system; a round's rate is that of the slower worker. The time from the last report
to the end of fit() is shown too: a rate that only fills a queue would show there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from measure import Findings, Goal, Options, Summary, main, progress, ratio, summary
from peers import NAMES, BenchmarkError, Job, available, work_directory

REPORTS = {"holdfast": 4000, "ray": 2}
GOAL = 2000


@dataclass(frozen=True)
class Rates:
    a_second: Summary
    drained_s: float


def measure(system: str, rounds: int, work: Path) -> Rates:
    count = REPORTS[system]
    with Job(system, "reports", work, rounds=rounds, reports=count) as job:
        job.wait(300)
        workers = [json.loads((job.log / rank).read_text()) for rank in ("0", "1")]
        fit = json.loads((job.log / "fit").read_text())
    last = (rounds + 1) * count - 1
    if system == "holdfast" and fit["metrics"]["step"] != last:
        raise BenchmarkError(f"the last report was step {last}, the result has {fit['metrics']}")
    slower = [max(pair) for pair in zip(*(worker["rounds"] for worker in workers), strict=True)]
    rates = Rates(summary([count / took for took in slower]), fit["ended"] - max(w["ended"] for w in workers))
    progress(f"{NAMES[system]}: {rates.a_second.show('reports/s')}")
    return rates


def run(options: Options) -> Findings:
    findings = Findings(
        "Reports without a checkpoint", ["", "a second, from each worker", "Holdfast against it", "to end"]
    )
    rates: dict[str, Rates] = {}
    with work_directory(options.work_dir) as work:
        for system in available(options.systems, tuple(REPORTS)):
            rates[system] = measure(system, options.repeats, work)
    for system, found in rates.items():
        against = ratio(rates["holdfast"].a_second.median, found.a_second.median) if "holdfast" in rates else ""
        findings.rows.append([NAMES[system], found.a_second.show(), against, f"{found.drained_s:.2f} s"])
        findings.samples[system] = {"reports_a_second": found.a_second.values, "drained_s": found.drained_s}
    if "holdfast" in rates:
        ours = rates["holdfast"].a_second
        findings.goals = [Goal(f"at least {GOAL:,} a second from each worker", ours.show(), ours.median >= GOAL)]
    findings.notes = ["'To end' is the time from the last report to the end of fit(). torchrun has no reports."]
    return findings


if __name__ == "__main__":
    main(__doc__, run)
