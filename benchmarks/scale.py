"""Large runs on one machine: the real driver, real messages and files, agents and workers as light stand-ins."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from holdfast.store import journal, staging
from holdfast.store.disk import Disk
from holdfast.store.layout import RunLayout
from scale_of.history import CHECKPOINT_EVERY_S, DAYS, INTERRUPTIONS, replay

HERE = Path(__file__).parent / "scale_of"
WORKERS_OF_AN_AGENT = 8
RACK = 64  # nodes
WITHIN_S = 900


def digest_of(content: bytes, work: Path) -> str:
    """As an agent would have told it."""
    directory = work / "digest"
    directory.mkdir()
    (directory / "file").write_bytes(content)
    return staging.seal(Disk(), directory)[0].digest


def play(workers: int, seconds: float, work: Path) -> dict[str, Any]:
    """One run; what its agents and its driver have measured."""
    agents = workers // WORKERS_OF_AN_AGENT
    rack = min(RACK, agents // 5)
    digest = digest_of(b"weights", work)
    path, out = str(work / "agents.sock"), {who: work / f"{who}.json" for who in ("agents", "driver")}
    stand_ins = subprocess.Popen(
        [sys.executable, HERE / "agents.py", path, str(agents), str(seconds), str(rack), digest, out["agents"]],
        stdout=subprocess.PIPE,
    )
    assert stand_ins.stdout is not None
    driver = None
    try:
        stand_ins.stdout.readline()
        log = (work / "driver.log").open("wb")
        driver = subprocess.Popen(
            [sys.executable, HERE / "driver.py", path, str(agents), str(work), out["driver"]], stdout=log, stderr=log
        )
        code = stand_ins.wait(WITHIN_S)
        code = code or driver.wait(WITHIN_S)
    finally:
        for process in (stand_ins, driver):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        stand_ins.stdout.close()
    if code:
        last = (work / "driver.log").read_text()[-3000:]
        raise SystemExit(f"the run of {workers} workers failed; its driver said:\n{last}")
    told = {who: json.loads(file.read_text()) for who, file in out.items()}
    records = journal.read(RunLayout(work / "scale"))[0]
    return summary(workers, agents, rack, told["agents"], told["driver"], records)


def cpu_at(samples: list[Any], at: float) -> float:
    """The CPU seconds that the driver had used by then, between two samples."""
    before = max((s for s in samples if s[0] <= at), default=samples[0])
    after = min((s for s in samples if s[0] >= at), default=samples[-1])
    share = (at - before[0]) / (after[0] - before[0]) if after[0] > before[0] else 0.0
    return before[1] + share * (after[1] - before[1])


def summary(
    workers: int, agents: int, rack: int, found: dict[str, Any], driver: dict[str, Any], records: list[Any]
) -> dict[str, Any]:
    training = found.pop("training")
    window = [s for s in driver["samples"] if training["began"] <= s[0] <= training["ended"]]
    cores = (window[-1][1] - window[0][1]) / (window[-1][0] - window[0][0])
    turns = sorted(took for at, took in driver["turns"] if training["began"] <= at <= training["ended"])
    kinds = Counter(record.kind for record in records)
    commit = found.pop("commit")
    found["commit_cpu_s"] = cpu_at(driver["samples"], commit["durable"]) - cpu_at(driver["samples"], commit["staged"])
    return {
        "workers": workers,
        "agents": agents,
        "rack": rack,
        "reports_per_s": training["reports_per_s"],
        "messages_per_s": training["messages_per_s"],
        "cores": cores,
        "peak_mb": driver["peak_mb"],
        "threads": max(sample[2] for sample in driver["samples"]),
        "turn_median_ms": 1000 * statistics.median(turns),
        "turn_p99_ms": 1000 * turns[int(0.99 * len(turns))],
        "journal_records": len(records),
        "journal_bytes": sum(len(str(record.body)) for record in records),
        "failures_told": kinds["WorkerFailed"],
        "rack_attempts": kinds["GroupStarted"] - 2,  # the first, and the one after the kill
        "commits": kinds["Committed"],
        "decision_p99_ms": 1000 * driver["decision_p99_s"],
        **found,
    }


class Goal(NamedTuple):
    what: str
    figure: str
    key: str
    limit: float


GOALS = [  # of the largest run, for which they were set
    Goal("messages a second, where every worker reports once a second", "{:,.0f}", "messages_per_s", 1 / 8),
    Goal("driver's memory, MB", "{:.0f}", "peak_mb", 250),
    Goal("driver's cores", "{:.2f}", "cores", 0.5),
    Goal("a decision, p99, ms", "{:.2f}", "decision_p99_ms", 10),
    Goal("a kill is told to all ranks, s", "{:.2f}", "kill_told_s", 1),
    Goal("attempts for the loss of a rack", "{:.0f}", "rack_attempts", 1),
    Goal("a checkpoint of all ranks commits, s", "{:.2f}", "commit_s", 1),
    Goal("a driver reads the journal of 54 days, s", "{:.2f}", "replay_s", 3),
]


def table(results: list[dict[str, Any]]) -> str:
    """The goals, with whether the largest run meets them, and what else was measured."""
    sizes = [f"{result['workers']:,} workers" for result in results]
    rows = [["", *sizes, "goal", "met"], ["---"] * (len(sizes) + 3)]
    for goal in GOALS:
        limit = goal.limit * results[-1]["workers"] if goal.key == "messages_per_s" else goal.limit
        figures = [goal.figure.format(result[goal.key]) if goal.key in result else "" for result in results]
        met = "yes" if results[-1][goal.key] <= limit else "NO"
        rows.append([goal.what, *figures, f"at most {limit:,g}", met])
    others = {
        "commit_cpu_s": "driver's CPU time for that commit, s",
        "turn_median_ms": "a turn of the loop, median, ms",
        "turn_p99_ms": "a turn of the loop, p99, ms",
    }
    others |= {"kill_recovered_s": "restart after a kill, s", "rack_recovered_s": "restart after the loss of a rack, s"}
    others |= {"start_s": "all agents connected and all workers started, s", "end_s": "from all returns to the end, s"}
    others |= {"threads": "driver's threads", "load": "load of the machine, at the end"}
    for key, what in others.items():
        rows.append([what, *(f"{result[key]:.2f}".removesuffix(".00") for result in results), "", ""])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[104, 1000, 10000])
    parser.add_argument("--seconds", type=float, default=10.0, help="of steady training")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = []
    for workers in options.workers:
        with tempfile.TemporaryDirectory(prefix="holdfast-scale-") as work:
            results.append({**play(workers, options.seconds, Path(work)), "load": os.getloadavg()[0]})
        print(f"{workers:,} workers: done", file=sys.stderr, flush=True)
    last = results[-1]
    with tempfile.TemporaryDirectory(prefix="holdfast-scale-") as work:
        stalls = {"measured": last["kill_recovered_s"], "3 minutes": 180.0, "10 minutes": 600.0}
        last |= replay(last["workers"], last["agents"], Path(work), stalls)
    print(table(results))
    what = f"{DAYS} days with {INTERRUPTIONS} interruptions, and a checkpoint every {CHECKPOINT_EVERY_S:.0f} s"
    print(f"\nGoodput of {what}:")
    for name, goodput in last["goodput"].items():
        print(f"  stalls of {name if name != 'measured' else f'{stalls[name]:.1f} s'}: {100 * goodput:.2f} %")
    if options.json:
        options.json.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
