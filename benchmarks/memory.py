"""Memory of a run with two workers, by role: proportional set size, which splits shared pages among their users.

The script imports torch at its top, as scripts do, so the driver holds torch too. The seed and the zygote are the warm
copies of torch from which workers are forked, and are counted separately from Holdfast's own driver and agent.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from measure import Findings, Goal, Options, Summary, main, memory, ratio, summary, threads
from peers import NAMES, Job, available, work_directory
from recovery import newest

MIB = 1024.0 * 1024.0
GOAL_MIB = 150
WARM_STEPS = 60
HOLDFAST_ROLES = {"hf-seed": "warm torch", "hf-zygote": "warm torch", "hf-agent": "agent"}
ORDER = ("driver", "agent", "warm torch", "other", "workers")
OWN = ("driver", "agent", "other")


@dataclass
class Usage:
    """Samples of each role's memory in MiB, and how many processes and threads there were."""

    by_role: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    processes: Counter[str] = field(default_factory=Counter)
    threads: int = 0

    def sum(self, roles: tuple[str, ...]) -> Summary:
        return summary(
            [sum(sizes) for sizes in zip(*(self.by_role[r] for r in roles if r in self.by_role), strict=True)]
        )


def role(job: Job, pid: int, workers: set[int]) -> str:
    if pid in workers:
        return "workers"
    if pid == job.process.pid:
        return "driver"
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "other"
    return HOLDFAST_ROLES.get(name, "other")


def measure(system: str, samples: int, work: Path) -> Usage:
    usage = Usage()
    with Job(system, "steps", work, step_s=0.03, checkpoint_every=20) as job:

        def warm() -> bool:
            ranks = newest(job.log)
            return len(ranks) == 2 and all(len(attempt.steps) >= WARM_STEPS for attempt in ranks.values())

        job.wait_for(warm, "it had trained for a while", 180)
        workers = {attempt.pid for attempt in newest(job.log).values()}
        roles = {pid: role(job, pid, workers) for pid in job.processes()}
        usage.processes.update(roles.values())
        usage.threads = sum(threads(pid) for pid in roles)
        for _ in range(samples):
            sizes: Counter[str] = Counter()
            for pid, name in roles.items():
                sizes[name] += memory(pid)
            for name, size in sizes.items():
                usage.by_role[name].append(size / MIB)
            time.sleep(0.2)
    return usage


def run(options: Options) -> Findings:
    findings = Findings("Memory of a run (PSS)", ["", *ORDER, "all", "against Holdfast", "processes", "threads"])
    used: dict[str, Usage] = {}
    with work_directory(options.work_dir) as work:
        for system in available(options.systems):
            used[system] = measure(system, options.repeats, work)
    for system, usage in used.items():
        cells = [
            f"{summary(usage.by_role[name]).median:.0f} MiB ({usage.processes[name]})" if name in usage.by_role else ""
            for name in ORDER
        ]
        every = usage.sum(ORDER)
        against = ratio(every.median, used["holdfast"].sum(ORDER).median) if "holdfast" in used else ""
        counts = [str(usage.processes.total()), str(usage.threads)]
        findings.rows.append([NAMES[system], *cells, every.show("MiB"), against, *counts])
        findings.samples[system] = {"mib": dict(usage.by_role), "processes": dict(usage.processes)}
    if "holdfast" in used:
        own = used["holdfast"].sum(OWN)
        text = f"under {GOAL_MIB} MiB beside the workers and the warm torch"
        findings.goals = [Goal(text, own.show("MiB"), own.median < GOAL_MIB)]
    findings.notes = ["In brackets: the number of processes. Under torchrun the driver is its agent."]
    return findings


if __name__ == "__main__":
    main(__doc__, run)
