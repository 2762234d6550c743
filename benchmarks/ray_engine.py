"""Holdfast on a Ray cluster beside Ray Train on the same kind of cluster, in one run.

Two DDP workers, steps of 30 ms, a checkpoint every 20. Nodes are raylets of this machine with one CPU each; the head
has no room for workers. Start: from the call of fit() on a running cluster to the first step of both workers. Worker
killed: SIGKILL to the next step. Node killed: its raylet is killed, and another node is in reserve; for Holdfast also
with HOLDFAST_STANDBY_NODES=1. A victim is chosen by chance, as often as there are repeats. Reports: calls of report()
without a checkpoint, beside the local engine.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import nodes
import report_rate
from measure import Findings, Goal, Options, Summary, main, progress, ratio, summary
from peers import MAIN, NAMES, RAY_START, Job, available, work_directory

START, WORKER, NODE = "start on a running cluster", "worker killed", "node killed, with a spare node"
GOALS = {START: 1.0, WORKER: 5.0, NODE: 3.0}
STANDBY = "holdfast, agent in reserve"
LABELS = {"holdfast": "Holdfast on Ray", STANDBY: "Holdfast on Ray, with an agent in reserve", "ray": NAMES["ray"]}
CLUSTERS = {"holdfast": "HoldfastNodes", STANDBY: "HoldfastNodesWithReserve", "ray": "RayNodes"}
FAULTS = {"holdfast": (WORKER, NODE), STANDBY: (NODE,), "ray": (WORKER, NODE)}
WARM_S = 12.0  # that a group has trained before something is done to it
REPORTS_AS_LOCAL = 0.8  # of the local engine's rate, which moves by more than that from run to run


def onto_ray(job: Job, kind: str) -> None:
    """Have the job make its own Ray cluster, and Holdfast use it."""
    script = Path(job._command[1])
    text = script.read_text()
    before = text
    text = text.replace(f"from nodes_of.{job.system} import Nodes", f"from ray_nodes import {CLUSTERS[kind]} as Nodes")
    if text == before and job.system == "holdfast":
        start = RAY_START.format(temp=str(job.directory / "ray"))
        text = text.replace(MAIN, f"{start}    os.environ['HOLDFAST_ENGINE'] = 'ray'\n")
    script.write_text(text)


def faults(kind: str, repeats: int, chance: random.Random, work: Path) -> dict[str, list[float]]:
    own = work / str(len(os.listdir(work)))  # a short name: Ray puts Unix sockets below it
    own.mkdir()
    scene = nodes.Nodes(kind.partition(",")[0], own, 3, 2)
    onto_ray(scene.job, kind)
    strike = {WORKER: kill_worker, NODE: lambda where: scene.order(f"kill {where}")}
    found: dict[str, list[float]] = {START: [], WORKER: [], NODE: []}
    with scene.job:
        group = scene.await_steps(2, 1)
        up = float((scene.job.directory / "up").read_text())
        found[START].append(max(attempt.steps[0][0] for attempt in group) - up)
        progress(f"{LABELS[kind]}, {START}: {found[START][-1]:.2f} s")
        for _ in range(repeats):
            for what in FAULTS[kind]:
                scene.warm_up(2, chance)
                killed = strike[what](scene.group(2)[chance.randrange(2)].node)
                found[what].append(next_step(scene, killed) - killed)
                progress(f"{LABELS[kind]}, {what}: {found[what][-1]:.2f} s")
            scene.order("add")
    return found


def kill_worker(where: str) -> float:
    killed = time.monotonic()
    os.kill(int(where.partition(".")[0]), signal.SIGKILL)
    return killed


def next_step(scene: nodes.Nodes, since: float) -> float:
    return max(attempt.steps[0][0] for attempt in scene.await_steps(2, 1, since))


def report_rates(rounds: int, work: Path) -> dict[str, report_rate.Rates]:
    """On a local cluster of Ray's, and on the local engine."""
    local = report_rate.measure("holdfast", rounds, work)
    plain = report_rate.Job

    class OnRay(Job):
        def __init__(self, *given: Any, **config: Any) -> None:
            super().__init__(*given, **config)
            onto_ray(self, self.system)

    report_rate.Job = OnRay  # type: ignore[misc]
    try:
        return {"local engine": local, "on Ray": report_rate.measure("holdfast", rounds, work)}
    finally:
        report_rate.Job = plain  # type: ignore[misc]


def faster_than(least: float) -> str:
    return "faster than" if least == 1.0 else f"at least {least:g} times faster than"


def run(options: Options) -> Findings:
    findings = Findings("On a Ray cluster", ["", *GOALS])
    times: dict[str, dict[str, Summary]] = {}
    rates: dict[str, report_rate.Rates] = {}
    nodes.WARM_S = WARM_S
    with work_directory(options.work_dir) as work:
        systems = available(options.systems, ("holdfast", "ray"))
        for kind in [kind for kind in LABELS if kind.partition(",")[0] in systems]:
            found = faults(kind, options.repeats, random.Random(options.seed), work)
            times[kind] = {what: summary(values) for what, values in found.items() if values}
            findings.rows.append([LABELS[kind], *(times[kind][w].show("s") if w in times[kind] else "" for w in GOALS)])
            findings.samples[kind] = found
        if "holdfast" in times:
            rates = report_rates(options.repeats, work)
    if {"holdfast", "ray"} <= times.keys():
        against = {what: times["ray"][what].median / times["holdfast"][what].median for what in GOALS}
        findings.rows.append(["Ray Train against Holdfast", *(ratio(faster, 1.0) for faster in against.values())])
        findings.goals = [
            Goal(f"{what}: {faster_than(least)} Ray Train", f"{against[what]:.1f} times", against[what] > least)
            for what, least in GOALS.items()
        ]
    if rates:
        ours, local = rates["on Ray"].calls, rates["local engine"].calls
        measured = f"{ours.show()} and {local.show()} calls a second"
        as_local = ours.median >= REPORTS_AS_LOCAL * local.median
        findings.goals.append(Goal("report() as fast as on the local engine", measured, as_local))
    return findings


if __name__ == "__main__":
    main(__doc__, run)
