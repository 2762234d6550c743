"""Large runs on one machine: the real driver, real messages and files, agents and workers as light stand-ins.

python benchmarks/scale.py --workers 100 1000 10000
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from holdfast.store import journal, staging
from holdfast.store.disk import Disk
from holdfast.store.layout import RunLayout

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


def summary(
    workers: int, agents: int, rack: int, found: dict[str, Any], driver: dict[str, Any], records: list[Any]
) -> dict[str, Any]:
    training = found.pop("training")
    window = [s for s in driver["samples"] if training["began"] <= s[0] <= training["ended"]]
    cores = (window[-1][1] - window[0][1]) / (window[-1][0] - window[0][0])
    turns = sorted(took for at, took in driver["turns"] if training["began"] <= at <= training["ended"])
    kinds = Counter(record.kind for record in records)
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
        **found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[100, 1000, 10000])
    parser.add_argument("--seconds", type=float, default=10.0, help="of steady training")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = []
    for workers in options.workers:
        work = Path(tempfile.mkdtemp(prefix="holdfast-scale-"))
        try:
            results.append(play(workers, options.seconds, work))
        finally:
            shutil.rmtree(work, ignore_errors=True)
        print(json.dumps(results[-1], indent=1), flush=True)
    if options.json:
        options.json.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
