"""report() without a checkpoint: how many a second each of two workers makes, one after the other.

Rounds of reports in one run for each system; a round's rate is that of the slower worker. Calls that only fill a queue
would look fast, so the sustained rate counts too: all reports of a worker, from its first one to the end of fit().
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
    calls: Summary
    sustained: float


def measure(system: str, rounds: int, work: Path) -> Rates:
    count = REPORTS[system]
    with Job(system, "reports", work, rounds=rounds, reports=count) as job:
        job.wait(300)
        workers = [json.loads((job.log / rank).read_text()) for rank in ("0", "1")]
        ended = float((job.log / "fit").read_text())
        total = (rounds + 1) * count
        if system == "holdfast":
            check_stored(job.storage / "reports", total)
    slower = [max(pair) for pair in zip(*(worker["rounds"] for worker in workers), strict=True)]
    took = ended - min(worker["first"] for worker in workers)
    rates = Rates(summary([count / one for one in slower]), total / took)
    progress(f"{NAMES[system]}: {rates.calls.show('reports/s')}, sustained {rates.sustained:.2f}")
    return rates


def check_stored(run: Path, total: int) -> None:
    from holdfast.train import Result

    stored = Result.from_path(run).metrics_dataframe
    steps = [] if stored is None else list(stored["step"])
    if steps != list(range(total)):
        raise BenchmarkError(f"{total} reports were made of each worker; of rank 0's, {len(steps)} are stored")


def goals(ours: Rates) -> list[Goal]:
    return [
        Goal(f"at least {GOAL:,} calls a second from each worker", ours.calls.show(), ours.calls.median >= GOAL),
        Goal(f"at least {GOAL:,} a second sustained", f"{ours.sustained:,.0f}", ours.sustained >= GOAL),
    ]


def run(options: Options) -> Findings:
    columns = ["", "calls a second, each worker", "sustained", "sustained, Holdfast against it"]
    findings = Findings("Reports without a checkpoint", columns)
    rates: dict[str, Rates] = {}
    with work_directory(options.work_dir) as work:
        for system in available(options.systems, tuple(REPORTS)):
            rates[system] = measure(system, options.repeats, work)
    for system, found in rates.items():
        against = ratio(rates["holdfast"].sustained, found.sustained) if "holdfast" in rates else ""
        findings.rows.append([NAMES[system], found.calls.show(), f"{found.sustained:,.2f}", against])
        findings.samples[system] = {"calls": found.calls.values, "sustained": found.sustained}
    if "holdfast" in rates:
        findings.goals = goals(rates["holdfast"])
    findings.notes = ["Sustained: from the first report to the end of fit(). torchrun has no reports."]
    return findings


if __name__ == "__main__":
    main(__doc__, run)
