"""A checkpoint of 1 GB on local disk: how long training stalls, excluding the save itself.

Rank 0 saves with torch.save into a temp directory on the file system of the storage path, reports it, and leaves the
`with` block; the stall is the time from the end of the save to there. The first checkpoint warms up. What a system does
behind the loop can slow the next save down; a save that is not reported shows how much.
"""

from __future__ import annotations

import json
from pathlib import Path

from measure import Findings, Goal, Options, Summary, main, progress, summary
from peers import NAMES, Job, available, work_directory

SIZE = 1_000_000_000
PAUSE_S = 4.0
GOAL_S = 0.010
VARIANTS = {
    "save": ("holdfast", "none", "the save alone, not reported"),
    "holdfast": ("holdfast", "default", "Holdfast"),
    "ray": ("ray", "default", "Ray Train, SYNC (its default)"),
    "ray-async": ("ray", "ASYNC", "Ray Train, ASYNC, deleting the local copy"),
}


def measure(system: str, upload: str, checkpoints: int, work: Path) -> dict[str, list[float]]:
    with Job(system, "big_checkpoint", work, size=SIZE, checkpoints=checkpoints, upload=upload, pause_s=PAUSE_S) as job:
        job.wait(120 + 40 * (checkpoints + 1))
        steps = [json.loads((job.log / f"{step}.json").read_text()) for step in range(1, checkpoints + 1)]
    return {name: [step[name] for step in steps] for name in ("save", "report", "block")}


def run(options: Options) -> Findings:
    findings = Findings("A checkpoint of 1 GB", ["", "the user's save", "in report()", "stall after the save"])
    stalls: dict[str, Summary] = {}
    with work_directory(options.work_dir) as work:
        systems = available(options.systems, ("holdfast", "ray"))
        for name, (system, upload, label) in VARIANTS.items():
            if system not in systems:
                continue
            found = measure(system, upload, options.repeats, work)
            stalls[name] = summary(found["block"])
            progress(f"{NAMES[system]}, {upload}: stands {stalls[name].show('ms', 1000)}")
            times = [summary(found["save"]).show("s"), summary(found["report"]).show("ms", 1000)]
            findings.rows.append([label, *times, stalls[name].show("ms", 1000)])
            findings.samples[name] = found
    if "holdfast" in stalls:
        ours = stalls["holdfast"]
        text = f"training stalls for at most {GOAL_S * 1000:.0f} ms, excluding the save"
        findings.goals = [Goal(text, ours.show("ms", 1000), ours.median <= GOAL_S)]
    findings.notes = [f"Between checkpoints the loop pauses {PAUSE_S:.0f} s."]
    return findings


if __name__ == "__main__":
    main(__doc__, run)
