"""A long run costs the same at its end as at its start: 10,000 reports, 1,000 checkpoints, num_to_keep=3.

The driver's time for each 1,000 reports, its memory after each, and the workers' time. Ray Train would need hours.
"""

from __future__ import annotations

import itertools
import json
import statistics
import threading
from dataclasses import dataclass
from pathlib import Path

from measure import Findings, Goal, Options, main, memory, progress, summary
from peers import BenchmarkError, Job, available, work_directory

REPORTS, CHECKPOINT_EVERY, STRETCH, KEEP = 10_000, 10, 1_000, 3
MIB = 1024.0 * 1024.0


@dataclass(frozen=True)
class LongRun:
    driver_s: list[float]
    worker_s: list[float]
    rss_mib: list[float]


def durations(path: Path) -> list[float]:
    times = [float(line.split()[0]) for line in path.read_text().splitlines()]
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def watch_driver(job: Job, sizes: list[float], done: threading.Event) -> None:
    """The driver's resident memory each time that it has marked a stretch."""
    marks = job.log / "driver"
    while not done.wait(0.01):
        count = marks.read_text().count("\n") - 1 if marks.exists() else 0
        size = memory(job.process.pid, "Rss") / MIB
        if count > len(sizes) and size > 0:
            sizes.append(size)


def measure(work: Path) -> LongRun:
    sizes: list[float] = []
    done = threading.Event()
    with Job("holdfast", "long_run", work, reports=REPORTS, checkpoint_every=CHECKPOINT_EVERY, stretch=STRETCH) as job:
        watcher = threading.Thread(target=watch_driver, args=(job, sizes, done))
        watcher.start()
        try:
            job.wait(600)
        finally:
            done.set()
            watcher.join()
        fit = json.loads((job.log / "fit").read_text())
        if fit != {"step": REPORTS - 1, "checkpoints": REPORTS // CHECKPOINT_EVERY, "kept": KEEP}:
            raise BenchmarkError(f"the run ended with {fit}")
        return LongRun(durations(job.log / "driver"), durations(job.log / "worker-0"), sizes)


def goals(found: LongRun) -> list[Goal]:
    """The first stretch warms up; the halves of what follows are compared."""
    half = len(found.driver_s) // 2
    early, late = statistics.median(found.driver_s[1 : half + 1]), statistics.median(found.driver_s[-half:])
    growth = found.rss_mib[-1] - found.rss_mib[1]
    return [
        Goal("the later half is at most 1.2 times as slow", f"{late / early:.2f} times", late <= 1.2 * early),
        Goal("the driver grows by less than 8 MiB after its first 2,000 reports", f"{growth:.1f} MiB", growth < 8),
    ]


def run(options: Options) -> Findings:
    columns = ["reports", "driver, for 1,000", "worker 0, for 1,000", "driver's memory (RSS)"]
    findings = Findings("A long run: 10,000 reports, 1,000 checkpoints", columns)
    if not available(options.systems, ("holdfast",)):
        return findings
    with work_directory(options.work_dir) as work:
        found = measure(work)
    progress(f"long run: {summary(found.driver_s).show('s')} for 1,000 reports")
    for number, (driver, worker, rss) in enumerate(zip(found.driver_s, found.worker_s, found.rss_mib, strict=False), 1):
        findings.rows.append([f"{number * STRETCH:,}", f"{driver:.2f} s", f"{worker:.2f} s", f"{rss:.1f} MiB"])
    findings.goals = goals(found)
    findings.samples = vars(found)
    return findings


if __name__ == "__main__":
    main(__doc__, run)
